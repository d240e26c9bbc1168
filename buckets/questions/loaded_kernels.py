"""Imported by the process from which rule checks are forked: loads or compiles the kernels, at low priority.

Until they are ready it watches whether its parent has ended; from then on multiprocessing does.
"""

import os
import signal
from typing import Final

from buckets.engine.stages.warm_up import warm_up
from buckets.questions import rule_checks as rule_checks

_NICENESS: Final = 10
_EVERY_S: Final = 0.5
_STARTED_BY: Final = os.getppid()


def _end_if_left_alone(*_: object) -> None:
    if os.getppid() != _STARTED_BY:
        os._exit(0)


os.nice(_NICENESS)
signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are for the parent
signal.signal(signal.SIGALRM, _end_if_left_alone)
signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
warm_up()
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)

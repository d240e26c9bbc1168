"""What a process imports from which checks of rules are forked: the kernels, loaded or compiled, at low priority.

Until they are there it looks whether whoever has started it has ended; from then on multiprocessing does.
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
signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever has started it
signal.signal(signal.SIGALRM, _end_if_left_alone)
signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
warm_up()
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)

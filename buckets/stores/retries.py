"""Asks a store again that has not answered, as long as that may pass by itself.

Libraries do so too, but each in its way: one gives up after some tries, another where an answer has begun.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 30.0
"""For how long a request is tried again that a store has not answered as it should."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0


def retried(ask: Callable[[], T], passes_within_s: Callable[[Exception], float]) -> T:
    """Ask until there is an answer.

    Args:
        ask: what is asked; has to be right however often it is done.
        passes_within_s: how long after the first try a fault may still pass by itself; 0 of one that does not.
    """
    began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except Exception as error:
            if time.monotonic() - began_s >= passes_within_s(error):
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

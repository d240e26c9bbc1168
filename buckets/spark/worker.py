"""The Python process that does the work of a task, and is used again for the next one."""

import gc
from functools import cache


@cache
def settle() -> None:
    """Take everything that is loaded out of the garbage collector's sight, once in a process.

    pyspark collects garbage after each task. With numpy, numba and pyarrow loaded that takes 70 ms, which a small
    batch has to wait for; what was loaded is never garbage.
    """
    gc.collect()
    gc.freeze()

"""Types of the arrays that most modules use, and read-only views of them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


def starts_of(lengths: npt.ArrayLike) -> Int64s:
    """Return the offsets of consecutive stretches of these lengths, and the end of the last one."""
    start = np.zeros(np.size(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


def read_only(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view of numbers; for a writable array, numba would compile a kernel again."""
    view = numbers.view()
    view.flags.writeable = False
    return view

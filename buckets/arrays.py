"""The arrays that most modules speak of, by the type of their numbers, and those that nobody changes any more."""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


def starts_of(lengths: npt.ArrayLike) -> Int64s:
    """Return where each of some stretches begins that lie one after the other, and where the last one ends."""
    start = np.zeros(np.size(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


def read_only(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as a view that is not to be changed; numba compiles a kernel again for an array that can be."""
    view = numbers.view()
    view.flags.writeable = False
    return view

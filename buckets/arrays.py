"""The arrays that most modules speak of, by the type of their numbers, and those that nobody changes any more."""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


def read_only(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as a view that is not to be changed; numba compiles a kernel again for an array that can be."""
    view = numbers.view()
    view.flags.writeable = False
    return view

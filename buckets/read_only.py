"""Arrays that nobody changes any more."""

from typing import Any

import numpy.typing as npt


def read_only(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as a view that is not to be changed; numba compiles a kernel again for an array that can be."""
    view = numbers.view()
    view.flags.writeable = False
    return view

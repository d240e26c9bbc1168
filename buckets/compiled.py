"""How kernels are compiled: by numba, once per machine, kept on disk."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function at its first call; later processes load it from numba's cache."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def leaf(function: Function) -> Function:
    """Compile a function that makes no arrays: without numba's reference counts, which cost more than its work."""
    return cast(Function, numba.njit(cache=True, nogil=True, _nrt=False)(function))  # type: ignore[call-overload]

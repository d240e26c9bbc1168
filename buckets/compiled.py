"""How kernels are compiled: by numba, once per machine, kept on disk.

numba notices that a kernel's own file has changed, but not that a file has changed from which it calls functions. So
the place on disk is named after the text of all kernels: after any change they are compiled anew, and old machine code
is never run.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_CONSTANTS = ("plan.py", "scaled.py", "verdict.py")
"""Modules without kernels whose constants are compiled into them."""


def _digest() -> str:
    texts = {each.name: each.read_bytes() for each in files("buckets").iterdir() if each.name.endswith(".py")}
    chosen = [name for name, text in texts.items() if name in _CONSTANTS or b"buckets.compiled" in text]
    return hashlib.blake2b(b"\0".join(texts[name] for name in sorted(chosen)), digest_size=8).hexdigest()


def _cache_folder() -> Path:
    """Beside the package's own compiled files where one may write there, else with the user's other caches."""
    package = Path(__file__).parent
    if os.environ.get("NUMBA_CACHE_DIR"):
        base = Path(os.environ["NUMBA_CACHE_DIR"])
    elif package.is_dir() and os.access(package, os.W_OK):
        base = package / "__pycache__"
    else:
        base = Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}"
    return base / f"kernels-{_digest()}"


vars(numba.config)["CACHE_DIR"] = str(_cache_folder())


def compiled(function: Function) -> Function:
    """Compile a function at its first call; later processes load it from numba's cache."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def leaf(function: Function) -> Function:
    """Compile a function that makes no arrays: without numba's reference counts, which cost more than its work."""
    return cast(Function, numba.njit(cache=True, nogil=True, _nrt=False)(function))  # type: ignore[call-overload]


def inlined(function: Function) -> Function:
    """Compile a leaf into each of its callers: for what runs for every event, where handing a timeline over costs more.

    A timeline is a tuple of fifteen arrays, and a call that is not inlined copies all of their descriptions.
    """
    return cast(Function, numba.njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function))  # type: ignore[call-overload]

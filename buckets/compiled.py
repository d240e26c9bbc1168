"""Compiles kernels with numba, once for each user of a machine, and caches them on disk.

numba notices changes of a kernel's own file, but not of files whose functions it calls. So the cache folder is named
after the text of all kernels, of the modules that they import, and the versions of numba and numpy: after any change
they are compiled again, and old machine code is never run. The path of a clone and the times of its files do not count,
so all clones of a version share one cache.

If the user cannot have a folder of their own, each run compiles for itself.
"""

import atexit
import contextlib
import fcntl
import gc
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import cgutils, event, types
from numba.core.caching import CacheImpl, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic, register_jitable

from buckets.tuple_places import hand_over_by_address
from buckets.user_caches import own_cache
from buckets.whole_kernels import KernelCompiler, compile_as_a_whole

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
_IMPORT = re.compile(rb"^from buckets\.([\w.]+) import", re.MULTILINE)


def kernel_files() -> dict[str, bytes]:
    """Return the text of all modules that compile something, and of modules that they import, by path."""
    package = Path(str(files("buckets")))
    texts = {str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*.py")}
    kernels = {name for name, text in texts.items() if b"from buckets.compiled import" in text} | {"compiled.py"}
    imported = {
        f"{module.decode().replace('.', '/')}.py" for name in kernels for module in _IMPORT.findall(texts[name])
    }
    return {name: texts[name] for name in sorted(kernels | imported & texts.keys())}


def digest() -> str:
    """Return the hash that names the folder of compiled kernels: of their texts, and the versions that compile them."""
    versions = [numba.__version__.encode(), np.__version__.encode()]
    return hashlib.blake2b(b"\0".join([*kernel_files().values(), *versions]), digest_size=8).hexdigest()


def cache_folder() -> Path:
    """Return a folder in `NUMBA_CACHE_DIR`, or else in the user's caches, or else beside the package's own files."""
    name = f"kernels-{digest()}"
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / name
    return own_cache(name) or _folder_of_this_run() / name


def _folder_of_this_run() -> Path:
    """Make a folder that is removed when the process ends; processes that it starts use it too."""
    folder, owner = Path(tempfile.mkdtemp(prefix="buckets-")), os.getpid()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


class KernelLocator(_CacheLocator):
    """Tells numba where to cache a kernel: by its module's name, in the folder that is named after all texts.

    numba's own locators name the folder after the path of the source file, and treat its content as stale when the
    file's time changes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._folder = os.path.join(FOLDER, function.__module__)
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        """Return the folder of its module."""
        return self._folder

    def get_source_stamp(self) -> str:
        """Return an empty stamp, as another text has another folder."""
        return ""

    def get_disambiguator(self) -> str:
        """Return the line at which it begins, as two functions of a module may have the same name."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "KernelLocator | None":
        """Return the locator of a function of this package; None for any other."""
        return cls(py_func) if py_func.__module__.startswith("buckets.") else None


@contextlib.contextmanager
def _alone_with(folder: str, name: str) -> Iterator[None]:
    """Wait for a process that compiles the same function; the next one finds the result in the cache.

    The system releases the lock of a killed process. If no lock can be made, each process compiles.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            lock = stack.enter_context(open(os.path.join(folder, f"{name}.lock"), "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Pause Python's garbage collector, which would repeatedly scan a million live objects of the compiler."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compile_once(kernel: Any, compile_: Callable[[Any], Any], signature: Any) -> Any:
    """Compile a kernel, or load it."""
    folder, name = kernel._cache.cache_path, kernel.py_func.__qualname__
    with global_compiler_lock, _alone_with(folder, name), _without_collecting():
        return compile_(signature)


class _Notice(event.Listener):
    """Says once, at a terminal, that kernels are being compiled."""

    is_wanted = sys.stderr is not None and sys.stderr.isatty()

    def on_start(self, event: Any) -> None:
        if self.is_wanted and event.data["dispatcher"].py_func.__module__.startswith("buckets."):
            self.is_wanted = False
            print("compiling the kernels, once for this machine: up to a minute", file=sys.stderr)  # noqa: T201

    def on_end(self, event: Any) -> None:
        pass


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    from buckets.errors import BucketsError

    message = "NUMBA_DISABLE_JIT is set in the environment, and kernels run compiled alone; unset it"
    raise BucketsError(message)
FOLDER = str(cache_folder())
"""The cache folder, chosen once: numba rereads its own setting whenever the environment has changed."""
_ALL_ARE_COMPILED = Path(FOLDER, "compiled")
CacheImpl._locator_classes.insert(0, KernelLocator)  # type: ignore[arg-type]
hand_over_by_address()
compile_as_a_whole()
event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
_ALL: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "pipeline_class": KernelCompiler}
_INNER: dict[str, Any] = {**_ALL, "no_cpython_wrapper": True, "forceinline": False}
"""For functions that only kernels call: a wrapper for Python would unpack each array of each tuple argument."""


def note_that_all_are_compiled() -> None:
    """Leave a mark beside the kernels, for `all_are_compiled`."""
    with contextlib.suppress(OSError):
        _ALL_ARE_COMPILED.touch()


def all_are_compiled() -> bool:
    """Return whether all kernels of this version have been compiled on this machine."""
    return _ALL_ARE_COMPILED.exists()


def compiled(function: Compiled) -> Compiled:
    """Compile a function that Python calls, at its first call; later processes load it from numba's cache.

    Loops over keys or events belong in a leaf that it calls: here every iteration counts references of arrays.
    """
    kernel: Any = numba.njit(cache=True, **_ALL)(function)
    kernel.compile = partial(_compile_once, kernel, kernel.compile)
    return cast(Compiled, kernel)


def allocating(function: Compiled) -> Compiled:
    """Let kernels call a function that allocates arrays. Python still calls the plain function."""
    return register_jitable(**_INNER)(function)


def leaf(function: Compiled) -> Compiled:
    """Let kernels call a function that allocates no arrays: it is compiled without numba's reference counts."""
    return register_jitable(_nrt=False, **_INNER)(function)


def inlined(function: Compiled) -> Compiled:
    """Inline a leaf into each of its callers, for code that runs for every event; LLVM decides about other leaves."""
    return register_jitable(_nrt=False, **_INNER | {"forceinline": True})(function)


def _bytes_at(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Return the address of an element of a byte array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _copy_bytes(typing: Any, target: Any, at: Any, source: Any, start: Any, length: Any) -> Any:
    del typing, at, start, length

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = _bytes_at(context, builder, signature.args[0], *arguments[:2])
        from_ = _bytes_at(context, builder, signature.args[2], *arguments[2:4])
        cgutils.raw_memcpy(builder, to, from_, arguments[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


def _read_word(typing: Any, data: Any, at: Any) -> Any:
    del typing, at

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _bytes_at(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(place, context.get_value_type(types.uint64).as_pointer()), align=1)

    return types.uint64(data, types.intp), generate


def _of_each(function: Callable[..., Any]) -> Any:
    """Return an intrinsic that applies a function, with two numbers, to each array of a named tuple."""

    def of_each(typing: Any, arrays: Any, one: Any, other: Any) -> Any:
        del typing, one, other
        two = types.intp, types.intp

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            model, (value, *numbers) = context.data_model_manager[arrays], arguments
            fields = [(model.field(builder, value, at), *numbers) for at in range(len(arrays.types))]
            found = [
                context.compile_internal(builder, function, kind(kind, *two), field)
                for kind, field in zip(arrays.types, fields, strict=True)
            ]
            return context.make_tuple(builder, signature.return_type, found)

        return arrays(arrays, *two), generate

    return intrinsic(of_each)


def _grown(array: Any, used: int, size: int) -> Any:
    """Return a longer array that begins with the same numbers."""
    larger = np.empty(size, array.dtype)
    for at in range(used):  # numba compiles a slice's assignment several times as long.
        larger[at] = array[at]
    return larger


between: Callable[..., Any] = _of_each(lambda array, first, end: array[first:end])
"""For kernels that allocate: `between(arrays, first, end)` returns rows `[first, end)` of each array of a named tuple,
without a copy."""
grown: Callable[..., Any] = _of_each(_grown)
"""For kernels that allocate: `grown(arrays, used, size)` returns one-dimensional arrays of length `size` that begin
with the first `used` numbers of each array."""
copy_bytes: Callable[..., None] = intrinsic(_copy_bytes)
"""For kernels: `copy_bytes(target, at, source, start, length)` copies bytes as C's `memcpy` does.

A loop over bytes would stay a loop, since numba does not know that the arrays do not overlap.
"""
read_word: Callable[..., np.uint64] = intrinsic(_read_word)
"""For kernels: `read_word(data, at)` returns eight bytes of an array of bytes as one number."""

"""The memory of an arena as mapped files: every process of this machine that opens them has the same arrays.

Room is taken before it is used (`posix_fallocate`): a full disk is an error here, where a page that cannot be had would
end the process. After such an error arrays go on in the memory of this process.
"""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from buckets.engine.storage.key import Array, MemoryPart

MARK = "mark"  # The file of a folder that is no array
OWN_FILE = 0o600
IS_KNOWN = hasattr(os, "posix_fallocate")  # Whether this system can promise room in a file


class MappedMemory:
    """Arrays in the files of a folder.

    Attributes:
        has_failed: whether there was no room: some of it lies in this process alone.
    """

    def __init__(self, folder: Path) -> None:
        """Map nothing yet."""
        self._folder = folder
        self._arrays: dict[str, Array] = {}
        self.has_failed = False

    def sizes(self) -> dict[str, int]:
        """Return how large each file is, by its name."""
        return {name: array.nbytes for name, array in self._arrays.items()}

    def resume(self, sizes: Mapping[str, int]) -> bool:
        """Go on with the arrays that lie in the files.

        Args:
            sizes: how large each file was left.

        Returns:
            Whether they are so large. What was mapped in another size is mapped again when it is asked for.
        """
        try:
            if any((self._folder / name).lstat().st_size != size for name, size in sizes.items()):
                return False
        except OSError:
            return False
        self._arrays = {name: array for name, array in self._arrays.items() if array.nbytes == sizes.get(name)}
        return True

    def clear(self) -> None:
        """Empty the files."""
        self._arrays.clear()
        for path in self._folder.iterdir():
            if path.name != MARK:
                os.truncate(path, 0)

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least so many rows; nothing is copied.

        Raises:
            OSError: the file of an array that has not been mapped yet cannot be mapped.
        """
        array = self._arrays.get(part.name)
        if array is not None and rows <= len(array):
            return array
        wanted = rows if array is None else max(rows, len(array) * 9 // 8)
        try:
            grown = self._map(part, wanted)
        except OSError:
            if array is None:
                raise
            self.has_failed = True
            grown = part.empty(max(wanted, rows * 3 // 2))
            grown[:kept] = array[:kept]
        self._arrays[part.name] = grown
        return grown

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Return an array of which at least half is used; the end of its file is given back."""
        array = self._arrays[part.name]
        if self.has_failed or len(array) <= 2 * kept:
            return array
        try:
            os.truncate(self._folder / part.name, _in_pages(part, kept))
            array = self._arrays[part.name] = self._map(part, kept)
        except OSError:
            self.has_failed = True  # what was mapped has these rows still
        return array

    def _map(self, part: MemoryPart, rows: int) -> Array:
        """Return a file as rows, made longer where it is too short."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / part.name, flags, OWN_FILE)
        try:
            size_bytes, needed_bytes = os.fstat(descriptor).st_size, _in_pages(part, rows)
            if size_bytes < needed_bytes:
                os.posix_fallocate(descriptor, size_bytes, needed_bytes - size_bytes)
            mapped = mmap.mmap(descriptor, max(size_bytes, needed_bytes))
        finally:
            os.close(descriptor)
        return part.shaped(np.frombuffer(mapped, part.dtype))


def _in_pages(part: MemoryPart, rows: int) -> int:
    """Return how much room rows take, in whole pages."""
    return -(-rows * part.row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE

"""Folders of a store into which this process alone writes, as long as it holds the lease of a checkpoint.

What it has listed, read or written there it knows, so a batch asks the store for nothing that it has put there itself.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_MOST_BYTES = 1 << 24
"""So much of what objects hold is kept of a folder; of others only the names are."""


@dataclass
class KnownFolder:
    """What is known of a folder; of several threads one asks at a time.

    Attributes:
        sizes: by name, how large the objects are; None until they have been listed.
    """

    sizes: dict[str, int] | None = None
    _contents: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    _kept_bytes: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def names(self, listed: Callable[[], Iterable[tuple[str, int]]]) -> dict[str, int]:
        """Return the objects with their sizes in bytes; `listed` lists them, which is done once."""
        with self._lock:
            if self.sizes is None:
                self.sizes = dict(listed())
            return dict(self.sizes)

    def read(self, name: str, listed: Callable[[], Iterable[tuple[str, int]]], get: Callable[[], bytes]) -> bytes:
        """Return what an object holds; `get` reads it.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._lock:
            if name not in self.names(listed):
                raise FileNotFoundError(name)
            if name not in self._contents:
                self._keep(name, get())
            return self._contents[name]

    def wrote(self, name: str, data: bytes) -> None:
        """Take in that an object was written."""
        with self._lock:
            if self.sizes is not None:
                self.sizes[name] = len(data)
            self._keep(name, data)

    def removed(self, name: str) -> bool:
        """Take in that an object is being removed, and return whether there may be one."""
        with self._lock:
            self._kept_bytes -= len(self._contents.pop(name, b""))
            return self.sizes is None or self.sizes.pop(name, None) is not None

    def _keep(self, name: str, data: bytes) -> None:
        self._kept_bytes += len(data) - len(self._contents.pop(name, b""))
        self._contents[name] = data
        while self._kept_bytes > _MOST_BYTES and len(self._contents) > 1:
            self._kept_bytes -= len(self._contents.popitem(last=False)[1])


OWNED: dict[str, KnownFolder] = {}
"""By their address, the folders that this process owns."""


def own(folders: Iterable[str]) -> None:
    """Begin to own folders, of which nothing is known yet."""
    OWNED.update({folder: KnownFolder() for folder in folders})


def disown(folders: Iterable[str]) -> None:
    """Own folders no more: others may write there."""
    for folder in folders:
        OWNED.pop(folder, None)

"""Folders of a store into which this process alone writes; asking a store again; and its environment variables.

What it has listed, read or written there it knows, so a batch asks the store for nothing that it has put there itself.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from buckets.errors import BucketsError
from buckets.web_address import is_address

_MOST_BYTES = 1 << 24  # So much of what objects hold is kept of a folder; of others only the names are


@dataclass
class KnownFolder:
    """What is known of a folder; of several threads one asks at a time."""

    sizes: dict[str, int] | None = None  # by name, how large the objects are; None until they have been listed
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


OWNED: dict[str, KnownFolder] = {}  # By their address, the folders that this process owns


def own(folders: Iterable[str]) -> None:
    """Begin to own folders, of which nothing is known yet."""
    OWNED.update({folder: KnownFolder() for folder in folders})


def disown(folders: Iterable[str]) -> None:
    """Own folders no more: others may write there."""
    for folder in folders:
        OWNED.pop(folder, None)


T = TypeVar("T")
PATIENCE_S = 30.0  # For how long a request is tried again that a store has not answered as it should
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0


def retried(ask: Callable[[], T], passes_within_s: Callable[[Exception], float]) -> T:
    """Ask until there is an answer.

    Args:
        ask: what is asked; has to be right however often it is done.
        passes_within_s: how long after the first try a fault may still pass by itself; 0 of one that does not.
    """
    began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except Exception as error:
            if time.monotonic() - began_s >= passes_within_s(error):
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


ENDPOINT: Final = "AWS_ENDPOINT_URL"
_ENDPOINTS = (ENDPOINT, f"{ENDPOINT}_S3", "AWS_ENDPOINT")
_VENDORS = ("AWS_", "AZURE_")


def check_environment() -> None:
    """See that clients of stores can be made of the environment; their libraries end the program where they cannot."""
    for name in _ENDPOINTS:
        endpoint = os.environ.get(name)
        if endpoint is not None and not is_address(endpoint):
            message = f"{name}: {endpoint!r} is no address, as in http://localhost:9000; correct it, or unset it"
            raise BucketsError(message)
    for name, value in os.environ.items():
        if name.startswith(_VENDORS) and not value.isprintable():
            message = f"{name}: holds a line end or another character that cannot be seen; take it out"
            raise BucketsError(message)

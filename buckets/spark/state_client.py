"""Calls on a shard's state, which the running task's Spark store answers (`buckets/java/state`).

One call carries many entries, laid out in both directions as in `ByteStrings`. A worker has one connection to its JVM
for all of its tasks.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from pyspark import SparkContext, TaskContext

from buckets.byte_strings import ByteStrings, concatenated, fixed
from buckets.engine.storage.shard_store import InColumns

ANNOUNCED = "buckets.state"
"""The local property that gives tasks the address of their stores and the secret."""
_AT_ONCE = 1024
_INT = struct.Struct("<i")
_OPEN, _GET, _PUT, _REMOVE, _LIST, _FETCH, _COMMIT = b"O", b"G", b"P", b"R", b"L", b"F", b"C"


class StateConnection:
    """A connection to the JVM."""

    _of_thread: ClassVar = threading.local()  # `connection`: the one kept by the thread

    def __init__(self, path: str) -> None:
        """Connect."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._answers = self._socket.makefile("rb")
        self._socket.connect(path)

    def __del__(self) -> None:
        """Close the connection when its thread ends."""
        self._answers.close()
        self._socket.close()

    @classmethod
    @contextlib.contextmanager
    def kept(cls, path: str) -> Iterator["StateConnection"]:
        """Yield this thread's connection; one that breaks inside the `with` is dropped."""
        connection: StateConnection | None = getattr(cls._of_thread, "connection", None)
        if connection is None or connection.path != path:
            connection = cls._of_thread.connection = cls(path)
        try:
            yield connection
        except (OSError, EOFError):  # the JVM has ended, or an attempt was cut off
            del cls._of_thread.connection
            raise

    @classmethod
    def of_task(cls) -> "StateConnection":
        """Return the worker's connection, opened on the store of the running task."""
        task = TaskContext.get()
        announced = None if task is None else task.getLocalProperty(ANNOUNCED)
        if task is None or announced is None:
            message = "the task has no state: only what `run_batch` runs has"
            raise RuntimeError(message)
        path, secret = announced.split("\n")
        with cls.kept(path) as connection:
            connection.call(_OPEN, f"{secret} {task.taskAttemptId()}".encode())
            return connection

    def commit(self) -> None:
        """Tell the JVM to commit the store, which must not be written to afterwards, while the task continues."""
        self._send(_COMMIT)

    def call(self, kind: bytes, *parts: bytes) -> ByteStrings:
        """Send a call and return the first answer; raises RuntimeError if the store refuses it."""
        self._send(kind, *parts)
        return self.answer()

    def _send(self, kind: bytes, *parts: bytes) -> None:
        self._socket.sendall(b"".join([_INT.pack(1 + sum(map(len, parts))), kind, *parts]))

    def answer(self) -> ByteStrings:
        """Return the next answer."""
        (length,) = _INT.unpack(self._read(_INT.size))
        if length < 0:
            (length,) = _INT.unpack(self._read(_INT.size))
            message = f"the state store refused a call: {self._read(length).decode(errors='replace')}"
            raise RuntimeError(message)
        answer = self._read(length)
        count = int.from_bytes(answer[:4], "little")
        start = np.zeros(count + 1, np.int64)
        np.cumsum(np.frombuffer(answer, "<i4", count, 4), out=start[1:])
        return fixed(np.frombuffer(answer, np.uint8, offset=4 * (1 + count)), start)

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            message = "the JVM has closed the connection to the state"
            raise EOFError(message)
        return data


class StateEntries(InColumns):
    """All entries of a shard in the running task's state."""

    def __init__(self, connection: StateConnection, shard: int) -> None:
        """Use a connection on which a store is open."""
        self._connection, self._shard = connection, _INT.pack(shard)

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Read entries; a missing one is empty."""
        return concatenated([self._call(_GET, some) for some in _pieces(keys)] or [ByteStrings.empties(0)])

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Write entries."""
        for some, of_some in zip(_pieces(keys), _pieces(values), strict=True):
            self._call(_PUT, some, of_some)

    def remove(self, keys: ByteStrings) -> None:
        """Remove entries."""
        for some in _pieces(keys):
            self._call(_REMOVE, some)

    def list_keys(self) -> Iterator[bytes]:
        """Yield all keys, in no particular order. Cost: O(entries)."""
        some = self._call(_LIST)
        while some.size:
            try:
                yield from some.to_list()
            except GeneratorExit:  # An answer that nobody reads would be taken for the next call's answer.
                while self._connection.answer().size:
                    pass
                raise
            some = self._connection.answer()

    def _call(self, kind: bytes, *columns: ByteStrings) -> ByteStrings:
        return self._connection.call(kind, self._shard, *map(_joined, columns))


@lru_cache(maxsize=4)
def state_tasks(context: SparkContext, method: str) -> Any:
    """Return a method of `StateTasks` in the driver's JVM; py4j needs four calls to look it up."""
    return getattr(context._jvm.buckets.StateTasks, method)  # type: ignore[union-attr]


def fetch(where: str) -> list[bytes]:
    """Return, once, what the JVM holds for the driver under the reference `where`."""
    path, name = where.split("\n")
    with StateConnection.kept(path) as connection:
        return connection.call(_FETCH, name.encode()).to_list()


def _joined(strings: ByteStrings) -> bytes:
    """Encode strings as their count, their lengths, and their bytes."""
    data = strings.data[strings.start[0] : strings.start[-1]]
    return b"".join([_INT.pack(strings.size), strings.lengths.astype("<i4").tobytes(), data.tobytes()])


def _pieces(strings: ByteStrings) -> Iterator[ByteStrings]:
    for begin in range(0, strings.size, _AT_ONCE):
        yield strings.slice(begin, min(begin + _AT_ONCE, strings.size))

"""State calls, many entries in one.

A state call is a message to the JVM and back. Many entries are one call, under a key of `BULK`, which our provider in
the JVM understands (`buckets/java/bulk`); Spark's own does not know the key, and gets a call for each entry. Calls use
private parts of pyspark's client, which take a tenth of the time, and public ones with any other version than
`KNOWN_VERSION`.
"""

import pickle
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyspark
from pyspark.sql.streaming.stateful_processor import MapState

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.shard_store import InObjects

KNOWN_VERSION = "4.2.1"
BULK = b"\xffbulk\0\0\1"
"""How a key begins that is a call for many entries. No section is named so (`engine/storage/shard_store.py`)."""
BULK_FROM = 4  # So many entries are worth the question whether the state knows such calls
_MOST_ENTRIES, _MOST_BYTES = 1024, 262_144
"""What one call is about, and what it has in keys and values: what an answer has is known to the JVM alone."""
_HEADER, _LENGTH = struct.Struct("!ii"), struct.Struct("!i")
"""What stands before a request: version 0 of the protocol and its length; before an answer, its length."""


def is_known() -> bool:
    """Return whether this pyspark's client is the one whose private parts are known."""
    return pyspark.__version__ == KNOWN_VERSION


class StateEntries(InObjects):
    """All entries of the shard that Spark is at, in its `binary -> binary` map state."""

    def __init__(self, state: MapState) -> None:
        """Use a map state."""
        self._state = state
        self._takes_bulk: bool | None = None

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Read entries; empty bytes where there is none."""
        if not self._in_bulk(keys):
            return [self._get(key) for key in keys]
        return [value for piece in _pieces(keys) for value in _parted(self._get(BULK + _joined(keys[piece])))]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Write entries."""
        if self._in_bulk(entries):
            keys, values = [key for key, _ in entries], [value for _, value in entries]
            pieces = _pieces(keys, values)
            entries = [(BULK + _joined(keys[piece]), _joined(values[piece])) for piece in pieces]
        for key, value in entries:
            if is_known():
                _call(self._state, UPDATE, (key, value))
            else:
                self._state.updateValue((key,), (value,))

    def remove(self, keys: ByteStrings) -> None:
        """Remove entries."""
        removed: Sequence[bytes] = keys.to_list()
        if self._in_bulk(removed):
            removed = [BULK + _joined(removed[piece]) for piece in _pieces(removed)]
        for key in removed:
            if is_known():
                _call(self._state, REMOVE, (key,))
            else:
                self._state.removeKey((key,))

    def list_keys(self) -> Iterator[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return map(bytes, (row[0] for row in iter(self._state.keys())))

    def takes_bulk(self) -> bool:
        """Return whether the state knows calls for many entries: it is asked for none of them, once."""
        if self._takes_bulk is None:
            self._takes_bulk = self._get(BULK + _joined([])) == _joined([])
        return self._takes_bulk

    def _in_bulk(self, entries: Sequence[object]) -> bool:
        return len(entries) >= BULK_FROM and self.takes_bulk()

    def _get(self, key: bytes) -> bytes:
        if is_known():
            return bytes_of(_call(self._state, GET, (key,)))
        value = self._state.getValue((key,))
        return b"" if value is None else bytes(value[0])


def _joined(strings: Sequence[bytes]) -> bytes:
    """Return how many there are, their lengths, and their bytes."""
    numbers = np.fromiter(map(len, strings), "<i4", len(strings))
    return b"".join([len(strings).to_bytes(4, "little"), numbers.tobytes(), *strings])


def _parted(joined: bytes) -> list[bytes]:
    count = int.from_bytes(joined[:4], "little")
    first = 4 + 4 * count
    ends = (first + np.frombuffer(joined, "<i4", count, 4).cumsum(dtype=np.int64)).tolist()
    return [joined[start:end] for start, end in pairwise([first, *ends])]


def _pieces(*columns: Sequence[bytes]) -> Iterator[slice]:
    """Part what belongs together into the pieces of one call each."""
    first = size = 0
    for number, row in enumerate(zip(*columns, strict=True)):
        size += sum(map(len, row))
        if size >= _MOST_BYTES or number + 1 - first == _MOST_ENTRIES:
            yield slice(first, number + 1)
            first, size = number + 1, 0
    if first < len(columns[0]):
        yield slice(first, None)


def _row(field: bytes) -> bytes:
    """Return a row of one field, as the JVM reads it.

    Pyspark's own serializer writes the same about ten times slower.
    """
    return pickle.dumps((field,), protocol=5)


def _size(number: int) -> bytes:
    """Return a length as Protocol Buffers write it."""
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


_SHORT_SIZES = tuple(map(_size, range(4096)))
GET, UPDATE, REMOVE = b"\x1a", b"\x2a", b"\x4a"
"""Fields of `MapStateCall`, as tags: getValue 3, updateValue 5, removeKey 9."""
_FIRST, _SECOND, _MAP_STATE_CALL, _VARIABLE_REQUEST, _VALUE = b"\x0a", b"\x12", b"\x1a", b"\x1a", b"\x1a"
"""Fields 1 and 2 of a call, `mapStateCall` of `StateVariableRequest`, that of `StateRequest`, `value` of an answer."""

_BEFORE_TEXT = (
    b"\x80\x02cpyspark.sql.types\n_create_row_inbound_converter\nq\x00cpyspark.sql.types\n_parse_datatype_json_string\nX"
    b'^\x00\x00\x00{"type":"struct","fields":[{"name":"timeline","type":"binary","nullable":true,"metadata":{}}]}'
    b"q\x01\x85Rq\x02\x85R(cbuiltins\nbytes\nc__builtin__\nbytearray\nX"
)
_AFTER_TEXT = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05\x85Rq\x06tRq\x07."
_TEXT_LENGTH = struct.Struct("<i")
"""What stands around the value in a pickled row of `windows.STATE_VALUE`, and the form of its length."""


def _field(tag: bytes, data: bytes) -> bytes:
    length = len(data)
    return tag + (_SHORT_SIZES[length] if length < 4096 else _size(length)) + data


def request(state_name: str, call: bytes, arguments: Sequence[bytes]) -> bytes:
    """Return a `StateRequest` for a call on a map state, byte for byte as pyspark's protobuf classes write it.

    They take three times as long: for a message of four levels, four objects.
    """
    body = _field(_FIRST, _row(arguments[0]))
    if len(arguments) > 1:
        body += _field(_SECOND, _row(arguments[1]))
    on_map = _field(_FIRST, state_name.encode()) + _field(call, body)
    return _field(_VARIABLE_REQUEST, _field(_MAP_STATE_CALL, on_map))


def _call(state: MapState, call: bytes, arguments: Sequence[bytes]) -> bytes:
    stream = state._mapStateClient._stateful_processor_api_client.sockfile
    message = request(state._stateName, call, arguments)
    stream.write(_HEADER.pack(0, len(message)) + message)
    stream.flush()
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    return value_of(stream.read(length))


def value_of(answer: bytes) -> bytes:
    """Return the value of a `StateResponse`; empty where it has none. Raises RuntimeError if the call was refused."""
    if answer[:1] in (b"", _VALUE):
        at = 1
        while answer[at : at + 1] > b"\x7f":
            at += 1
        return answer[at + 1 :]
    from pyspark.sql.streaming.proto import StateMessage_pb2 as proto

    response = proto.StateResponse.FromString(answer)
    message = f"the state store refused a call: {response.errorMessage or response.statusCode}"
    raise RuntimeError(message)


def bytes_of(row: bytes) -> bytes:
    """Return the field of a row of one binary field, as the JVM pickles it; empty where there is no row.

    To unpickle it would mean to read its schema, which goes with every row as JSON: 10 us.

    Raises:
        RuntimeError: the row is of another form.
    """
    if not row:
        return b""
    start, end = len(_BEFORE_TEXT) + _TEXT_LENGTH.size, len(row) - len(_AFTER_TEXT)
    if not row.startswith(_BEFORE_TEXT) or not row.endswith(_AFTER_TEXT) or end < start:
        message = f"the state store has answered with a row of unknown form, which begins with {row[:300]!r}"
        raise RuntimeError(message)
    assert _TEXT_LENGTH.unpack_from(row, start - _TEXT_LENGTH.size)[0] == end - start
    text = row[start:end]
    return text if text.isascii() else text.decode().encode("latin-1")

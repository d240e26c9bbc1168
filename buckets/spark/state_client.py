"""Many state calls in one go.

A state call is a message to the JVM and back. Sending requests, twice `WINDOW` of them, before their answers are read
makes the waiting overlap, several times faster where keys are many. This uses private parts of pyspark's client; with
any other version than `KNOWN_VERSION` the public calls are made, one by one, with the same results.
"""

import pickle
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import pyspark
from pyspark.sql.streaming.stateful_processor import MapState

KNOWN_VERSION = "4.2.1"
WINDOW = 64
WINDOW_BYTES = 32_768
"""What is sent ahead fits the socket's buffer: else both sides could wait for the other to read."""
_HEADER, _LENGTH = struct.Struct("!ii"), struct.Struct("!i")
"""What stands before a request: version 0 of the protocol and its length; before an answer, its length."""


def is_pipelined() -> bool:
    """Return whether this pyspark's client is the one whose private parts are known."""
    return pyspark.__version__ == KNOWN_VERSION


def get_values(state: MapState, keys: Sequence[bytes]) -> list[bytes]:
    """Read many entries of a `binary -> binary` map state; empty bytes where there is none."""
    if is_pipelined():
        return [bytes_of(answer) for answer in _pipelined(state, GET, ((key,) for key in keys))]
    values = [state.getValue((key,)) for key in keys]
    return [b"" if value is None else bytes(value[0]) for value in values]


def put_values(state: MapState, entries: Sequence[tuple[bytes, bytes]]) -> None:
    """Write many entries of a `binary -> binary` map state."""
    if is_pipelined():
        deque(_pipelined(state, UPDATE, entries), maxlen=0)
    else:
        for key, value in entries:
            state.updateValue((key,), (value,))


def remove_keys(state: MapState, keys: Sequence[bytes]) -> None:
    """Remove many entries of a `binary -> binary` map state."""
    if is_pipelined():
        deque(_pipelined(state, REMOVE, ((key,) for key in keys)), maxlen=0)
    else:
        for key in keys:
            state.removeKey((key,))


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

    Args:
        state_name: of the map state.
        call: tag of the call.
        arguments: user key, then the value of an update.
    """
    body = _field(_FIRST, _row(arguments[0]))
    if len(arguments) > 1:
        body += _field(_SECOND, _row(arguments[1]))
    on_map = _field(_FIRST, state_name.encode()) + _field(call, body)
    return _field(_VARIABLE_REQUEST, _field(_MAP_STATE_CALL, on_map))


def _pipelined(state: MapState, call: bytes, calls: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """Make calls, up to two windows ahead of their answers; yields each answer's value.

    Calls of one kind have either small requests or small answers, so that the two sides never wait for each other.
    """
    stream = state._mapStateClient._stateful_processor_api_client.sockfile
    window: list[bytes] = []
    window_bytes = under_way = 0

    def answers(count: int) -> Iterator[bytes]:
        for _ in range(count):
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            yield value_of(stream.read(length))

    for arguments in calls:
        message = request(state._stateName, call, arguments)
        if window and (len(window) == WINDOW or window_bytes + len(message) > WINDOW_BYTES):
            stream.write(b"".join(window))
            stream.flush()
            yield from answers(under_way)
            under_way, window_bytes = len(window), 0
            window.clear()
        window.append(_HEADER.pack(0, len(message)) + message)
        window_bytes += len(message)
    stream.write(b"".join(window))
    stream.flush()
    yield from answers(under_way + len(window))


def value_of(answer: bytes) -> bytes:
    """Return the value of a `StateResponse`; empty where it has none.

    Raises:
        RuntimeError: the call was refused.
    """
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

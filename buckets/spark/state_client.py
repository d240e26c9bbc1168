"""Many state calls in one go.

A state call is a message to the JVM and back. Sending `WINDOW` requests before their answers are read makes the
waiting overlap, several times faster where keys are many. This uses private parts of pyspark's client; with any other
version than `KNOWN_VERSION` the public calls are made, one by one, with the same results.
"""

import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence

import pyspark
from pyspark.sql.streaming.stateful_processor import MapState

KNOWN_VERSION = "4.2.0"
WINDOW = 64
WINDOW_BYTES = 65_536
"""What is sent ahead fits the socket's buffer: else both sides could wait for the other to read."""
_HEADER, _LENGTH = struct.Struct("!ii"), struct.Struct("!i")
"""What stands before a request: version 0 of the protocol and its length; before an answer, its length."""


def is_pipelined() -> bool:
    """Whether this pyspark's client is the one whose private parts are known."""
    return pyspark.__version__ == KNOWN_VERSION


def get_values(state: MapState, keys: Sequence[bytes]) -> list[bytes]:
    """Read many entries of a `binary -> binary` map state; empty bytes where there is none."""
    if is_pipelined():
        return _pipelined_get(state, keys)
    found = [state.getValue((key,)) for key in keys]
    return [b"" if value is None else bytes(value[0]) for value in found]


def put_values(state: MapState, entries: Sequence[tuple[bytes, bytes]]) -> None:
    """Write many entries of a `binary -> binary` map state."""
    if is_pipelined():
        _pipelined_put(state, entries)
    else:
        for key, value in entries:
            state.updateValue((key,), (value,))


def remove_keys(state: MapState, keys: Sequence[bytes]) -> None:
    """Remove many entries of a `binary -> binary` map state."""
    if is_pipelined():
        _pipelined_remove(state, keys)
    else:
        for key in keys:
            state.removeKey((key,))


def _row(field: bytes) -> bytes:
    """A row of one field, as the JVM reads it; pyspark's own serializer writes the same about ten times slower."""
    return pickle.dumps((field,), protocol=5)


def _size(number: int) -> bytes:
    """A length as Protocol Buffers write it."""
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


_SHORT_SIZES = tuple(map(_size, range(4096)))
_GET, _UPDATE, _REMOVE = b"\x1a", b"\x2a", b"\x4a"
"""Fields of `MapStateCall`, as tags: getValue 3, updateValue 5, removeKey 9."""
_FIRST, _SECOND, _MAP_STATE_CALL, _VARIABLE_REQUEST, _VALUE = b"\x0a", b"\x12", b"\x1a", b"\x1a", b"\x1a"
"""Fields 1 and 2 of a call, `mapStateCall` of `StateVariableRequest`, that of `StateRequest`, `value` of an answer."""


def _field(tag: bytes, data: bytes) -> bytes:
    length = len(data)
    return tag + (_SHORT_SIZES[length] if length < 4096 else _size(length)) + data


def request(state_name: str, call: bytes, arguments: Sequence[bytes]) -> bytes:
    """A `StateRequest` for a call on a map state, byte for byte as pyspark's protobuf classes write it.

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
    """Make calls, a window ahead of their answers; yields each answer's message."""
    stream = state._mapStateClient._stateful_processor_api_client.sockfile
    window: list[bytes] = []
    window_bytes = 0

    def exchange() -> Iterator[bytes]:
        stream.write(b"".join(_HEADER.pack(0, len(each)) + each for each in window))
        stream.flush()
        for _ in window:
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            yield stream.read(length)

    for arguments in calls:
        message = request(state._stateName, call, arguments)
        if window and (len(window) == WINDOW or window_bytes + len(message) > WINDOW_BYTES):
            yield from exchange()
            window.clear()
            window_bytes = 0
        window.append(message)
        window_bytes += len(message)
    if window:
        yield from exchange()


def _value(answer: bytes) -> bytes:
    """The value of a `StateResponse`; empty where it has none.

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


def _pipelined_get(state: MapState, keys: Sequence[bytes]) -> list[bytes]:
    values = map(_value, _pipelined(state, _GET, ((key,) for key in keys)))
    return [bytes(pickle.loads(value)[0]) if value else b"" for value in values]


def _pipelined_put(state: MapState, entries: Sequence[tuple[bytes, bytes]]) -> None:
    for answer in _pipelined(state, _UPDATE, entries):
        _value(answer)


def _pipelined_remove(state: MapState, keys: Sequence[bytes]) -> None:
    for answer in _pipelined(state, _REMOVE, ((key,) for key in keys)):
        _value(answer)

"""Many state calls in one go.

A state call is a message to the JVM and back. Sending `WINDOW` requests before their answers are read makes the
waiting overlap, several times faster where keys are many. This uses private parts of pyspark's client; with any other
version than `KNOWN_VERSION` the public calls are made, one by one, with the same results.
"""

import pickle
from collections.abc import Iterable, Sequence

import pyspark
from pyspark.serializers import write_int
from pyspark.sql.streaming.stateful_processor import MapState

KNOWN_VERSION = "4.2.0"
WINDOW = 64
WINDOW_BYTES = 65_536
"""What is sent ahead fits the socket's buffer: else both sides could wait for the other to read."""


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


def _row(field: bytes) -> bytes:
    """A row of one field, as the JVM reads it; pyspark's own serializer writes the same about ten times slower."""
    return pickle.dumps((field,), protocol=5)


def _pipelined(state: MapState, requests: Iterable[bytes]) -> Iterable[bytes]:
    """Send requests, a window ahead of their answers; yields each answer's value."""
    client = state._mapStateClient._stateful_processor_api_client
    stream = client.sockfile
    window: list[bytes] = []
    window_bytes = 0

    def exchange() -> Iterable[bytes]:
        for request in window:
            write_int(0, stream)
            write_int(len(request), stream)
            stream.write(request)
        stream.flush()
        for _ in window:
            status, error, value = client._receive_proto_message()
            if status != 0:
                message = f"the state store refused a call: {error}"
                raise RuntimeError(message)
            yield value

    for request in requests:
        if window and (len(window) == WINDOW or window_bytes + len(request) > WINDOW_BYTES):
            yield from exchange()
            window.clear()
            window_bytes = 0
        window.append(request)
        window_bytes += len(request)
    if window:
        yield from exchange()


def _pipelined_get(state: MapState, keys: Sequence[bytes]) -> list[bytes]:
    from pyspark.sql.streaming.proto import StateMessage_pb2 as proto

    def request(key: bytes) -> bytes:
        call = proto.MapStateCall(stateName=state._stateName, getValue=proto.GetValue(userKey=_row(key)))
        variable = proto.StateVariableRequest(mapStateCall=call)
        return proto.StateRequest(stateVariableRequest=variable).SerializeToString()  # type: ignore[no-any-return]

    answers = _pipelined(state, map(request, keys))
    return [bytes(pickle.loads(value)[0]) if value else b"" for value in answers]


def _pipelined_put(state: MapState, entries: Sequence[tuple[bytes, bytes]]) -> None:
    from pyspark.sql.streaming.proto import StateMessage_pb2 as proto

    def request(entry: tuple[bytes, bytes]) -> bytes:
        key, value = entry
        update = proto.UpdateValue(userKey=_row(key), value=_row(value))
        call = proto.MapStateCall(stateName=state._stateName, updateValue=update)
        variable = proto.StateVariableRequest(mapStateCall=call)
        return proto.StateRequest(stateVariableRequest=variable).SerializeToString()  # type: ignore[no-any-return]

    for _ in _pipelined(state, map(request, entries)):
        pass

"""Messages in Protobuf made of plain values, and plain values made of messages: for few of them, and all of each.

Of a schema that was read with `maps_as_lists`, so that the entries of a map keep their order. A field of type Timestamp
is ms since 1970, a message of the fields `text`, `number` and `flag` a single value, and one of the field `names` a
list that may be missing.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from buckets.events.protobuf.wanted import TIMESTAMP

_SCALARS = {bool: "flag", int: "number", str: "text"}
"""Of a message with one field for each, the one that holds a value of a type."""
_ENTRY = {"key", "value"}
_NAMES = "names"


def protobuf_bytes(message: Descriptor, value: dict[str, Any]) -> bytes:
    """Return an object as a message, without a prefix.

    A text takes anything as JSON. What is null, or not in the object, is not there.
    """
    written: bytes = _fill(_class_of(message)(), value).SerializeToString(deterministic=True)
    return written


def protobuf_value(message: Descriptor, content: bytes) -> dict[str, Any]:
    """Return what a message says, null for what is not there.

    Raises:
        ValueError: it is broken.
    """
    read = _class_of(message)()
    try:
        read.ParseFromString(content)
    except DecodeError:
        fault = "is no message of its schema"
        raise ValueError(fault) from None
    return _fields(read)


@lru_cache(maxsize=64)
def _class_of(message: Descriptor) -> Any:
    return message_factory.GetMessageClass(message)


@lru_cache(maxsize=256)
def _fillers(message: Descriptor) -> list[tuple[str, Callable[[Any, str, Any], None]]]:
    """Return by field of a message what puts a value into it."""
    return [(field.name, _filler(field)) for field in message.fields]


def _filler(field: FieldDescriptor) -> Callable[[Any, str, Any], None]:
    inside = field.message_type
    if inside is None:
        return _fill_list if field.is_repeated else _fill_plain
    if field.is_repeated:
        return _fill_entries if set(inside.fields_by_name) == _ENTRY else _fill_messages
    if inside.full_name == TIMESTAMP:
        return _fill_moment
    return _fill_names if _NAMES in inside.fields_by_name else _fill_single


def _fill(made: Any, value: dict[str, Any]) -> Any:
    for name, put in _fillers(made.DESCRIPTOR):
        given = value.get(name)
        if given is not None:
            put(made, name, given)
    return made


def _fill_plain(made: Any, name: str, given: Any) -> None:
    setattr(made, name, _as_text(given) if isinstance(given, dict | list) else given)


def _as_text(given: Any) -> str:
    return json.dumps(given, ensure_ascii=False)


def _fill_list(made: Any, name: str, given: Any) -> None:
    getattr(made, name).extend(given)


def _fill_entries(made: Any, name: str, given: Any) -> None:
    entries = getattr(made, name)
    for key, each in given.items():
        _fill_scalar(entries.add(key=key).value, each)


def _fill_messages(made: Any, name: str, given: Any) -> None:
    messages = getattr(made, name)
    for each in given:
        _fill(messages.add(), each)


def _fill_moment(made: Any, name: str, given: Any) -> None:
    moment = getattr(made, name)
    moment.seconds, moment.nanos = given // 1000, given % 1000 * 1_000_000
    moment.SetInParent()


def _fill_names(made: Any, name: str, given: Any) -> None:
    fields = getattr(made, name)
    fields.SetInParent()
    fields.names.extend(given)


def _fill_single(made: Any, name: str, given: Any) -> None:
    _fill_scalar(getattr(made, name), given)


def _fill_scalar(made: Any, value: Any) -> None:
    """Put a single value into a message that has a field for each type of it; a list as JSON, null as none of them."""
    made.SetInParent()
    if value is not None:
        is_list = isinstance(value, list)
        setattr(made, _SCALARS[str if is_list else type(value)], _as_text(value) if is_list else value)


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value: Any = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if not field.is_repeated:
        return _single(value)
    if set(field.message_type.fields_by_name) == _ENTRY:
        return {entry.key: _single(entry.value) for entry in value}
    return [_fields(each) for each in value]


def _single(message: Any) -> Any:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        return message.ToMilliseconds()
    if _NAMES in message.DESCRIPTOR.fields_by_name:
        return list(message.names)
    (oneof,) = message.DESCRIPTOR.oneofs
    kind = message.WhichOneof(oneof.name)
    return None if kind is None else getattr(message, kind)

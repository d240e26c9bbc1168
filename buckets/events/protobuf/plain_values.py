"""Messages in Protobuf made of plain values, and plain values made of messages: for few of them, and all of each.

Of a schema that was read with `maps_as_lists`, so that the entries of a map keep their order. A field of type Timestamp
is ms since 1970, a message of the fields `text`, `number` and `flag` a single value, and one of the field `names` a
list that may be missing.
"""

import json
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


def _fill(made: Any, value: dict[str, Any]) -> Any:
    for field in made.DESCRIPTOR.fields:
        given = value.get(field.name)
        if given is None:
            continue
        inside = field.message_type
        if isinstance(given, dict) and field.is_repeated:
            for name, each in given.items():
                entry = getattr(made, field.name).add(key=name)
                _fill_scalar(entry.value, each)
        elif field.is_repeated and inside is None:
            getattr(made, field.name).extend(given)
        elif field.is_repeated:
            for each in given:
                _fill(getattr(made, field.name).add(), each)
        elif inside is None:
            is_json = isinstance(given, dict | list)
            setattr(made, field.name, json.dumps(given, ensure_ascii=False) if is_json else given)
        elif inside.full_name == TIMESTAMP:
            getattr(made, field.name).FromMilliseconds(given)
        elif isinstance(given, list):
            getattr(made, field.name).SetInParent()
            getattr(made, field.name).names.extend(given)
        else:
            _fill_scalar(getattr(made, field.name), given)
    return made


def _fill_scalar(made: Any, value: Any) -> None:
    """Put a single value into a message that has a field for each type of it; null is none of them."""
    made.SetInParent()
    if value is not None:
        setattr(made, _SCALARS[type(value)], value)


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

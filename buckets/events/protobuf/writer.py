"""Writes plain values in Protobuf, by a message of a schema."""

import json
from functools import lru_cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from buckets.events.protobuf.wanted import TIMESTAMP, is_map

_SCALARS = {bool: "flag", int: "number", str: "text"}
"""Of a message with one field for each, the one that holds a value of a type."""


def protobuf_bytes(message: Descriptor, value: dict[str, Any]) -> bytes:
    """Return an object as a message, without a prefix.

    A field of type Timestamp takes ms since 1970, a text anything as JSON, and a message of the fields `text`, `number`
    and `flag` a single value. What is null, or not in the object, is not there.
    """
    written: bytes = _fill(_class_of(message)(), value).SerializeToString(deterministic=True)
    return written


@lru_cache(maxsize=64)
def _class_of(message: Descriptor) -> type[Message]:
    return message_factory.GetMessageClass(message)


def _fill(made: Any, value: dict[str, Any]) -> Any:
    for field in made.DESCRIPTOR.fields:
        given = value.get(field.name)
        if given is None:
            continue
        inside = field.message_type
        if is_map(field):
            entries = getattr(made, field.name)
            for name, each in given.items():
                _fill_scalar(entries[name], each)
        elif field.is_repeated and inside is None:
            getattr(made, field.name).extend(given)
        elif field.is_repeated:
            for each in given:
                _fill(getattr(made, field.name).add(), each)
        elif inside is None:
            setattr(made, field.name, _plain(given))
        elif inside.full_name == TIMESTAMP:
            getattr(made, field.name).FromMilliseconds(given)
        else:
            _fill_scalar(getattr(made, field.name), given)
    return made


def _plain(value: Any) -> Any:
    """Return a value as its field takes it: an object or list for a text is JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _fill_scalar(made: Any, value: Any) -> None:
    """Put a single value into a message that has a field for each type of it; null is none of them."""
    made.SetInParent()
    if value is not None:
        setattr(made, _SCALARS[type(value)], value)

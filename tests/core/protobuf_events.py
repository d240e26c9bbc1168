"""Messages in Protobuf for tests: what the vendor's encoder writes, and what the vendor's decoder reads of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from buckets.events import conversion
from buckets.events.arrivals import BROKEN, field_column
from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.events.protobuf.protobuf_events import read_plain
from buckets.events.schema import EventSchema
from tests.core.avro_events import FAULTY, faulty, rows_of

UNREADABLE = object()
"""What a message is that the vendor's decoder refuses."""


def class_of(text: str, name: str | None = None) -> type[Message]:
    """The vendor's class of a message of a `.proto` file."""
    return message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", text)), name))


def descriptors_of(written: WriterSchema) -> list[FileDescriptorProto]:
    """The files of a schema as descriptors, its own as the last one."""
    file = read_schema(written)
    found = [FileDescriptorProto() for _ in (*file.dependencies, file)]
    for made, each in zip(found, (*file.dependencies, file), strict=True):
        each.CopyToProto(made)
    return found


def encoded(text: str, values: Mapping[str, Any], name: str | None = None) -> bytes:
    """A message as the vendor's encoder writes it, from its JSON."""
    return json_format.ParseDict(values, class_of(text, name)()).SerializeToString(deterministic=True)


def declared(names: Sequence[str]) -> EventSchema:
    """An event schema of text fields, and of the boolean `vip`; its time is in none of the messages."""
    first, *others = names
    attributes = {name: "boolean" if name == "vip" else "string" for name in others}
    return EventSchema.model_validate({"event_id": first, "event_time": "no_time", "attributes": attributes})


def texts_of(
    text: str, names: Sequence[str], messages: Sequence[bytes], message: str | None = None
) -> list[dict[str, Any] | None]:
    """The fields of each message as text; `FAULTY` for those without one, None for a message that is broken as such."""
    of_events = declared(names)
    read = read_plain(rows_of(messages), of_events, WriterSchema("PROTOBUF", text), message)
    rows: list[dict[str, Any] | None] = [{} for _ in messages]
    for index, name in enumerate(of_events.field_names):
        column, faults = conversion.attributes(
            read.column(field_column(index)), of_events.attributes.get(name, "string")
        )
        for row, value in enumerate(column.to_pylist()):
            rows[row][name] = FAULTY if row in faults else str(value).lower() if isinstance(value, bool) else value
    for row, reason in enumerate(read.column(BROKEN).to_pylist()):
        if reason is not None:
            fault = {reason.partition(":")[0]: faulty(reason)}
            rows[row] = None if reason.startswith("broken Protobuf") else rows[row] | fault
    return rows


def vendor_reads(kind: type[Message], message: bytes) -> Any:
    """What the vendor's decoder reads of a message; `UNREADABLE` where it refuses it."""
    read = kind()
    try:
        read.ParseFromString(message)
    except DecodeError:
        return UNREADABLE
    return read


def value_of(message: Message, name: str) -> Any:
    """The value of a field by its path, None where it is absent; an enum is its name, or a number without one."""
    *inside, last = name.split(".")
    for step in inside:
        if not message.HasField(step):
            return None
        message = getattr(message, step)
    field = message.DESCRIPTOR.fields_by_name[last]
    if field.has_presence and not message.HasField(last) and not field.has_default_value:
        return None
    value = getattr(message, last)
    if field.message_type is not None and field.message_type.full_name.endswith("Value"):
        return value.value
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def is_same(text: Any, value: Any) -> bool:
    """Whether a text says what the vendor's decoder has read."""
    match value:
        case None:
            return text is None
        case bool():
            return text == str(value).lower()
        case bytes():
            try:
                return text == value.decode()
            except UnicodeDecodeError:
                return text in (FAULTY, None)  # None where another field was found faulty before
        case int():
            return text == str(value)
        case float():
            return text is None or value != value or value == float(text) or value == np.float32(text)
        case Message():
            if value.DESCRIPTOR.full_name != "google.protobuf.Timestamp":
                return text in (FAULTY, None)  # None where another field was found faulty before
            try:
                return text == value.ToJsonString()
            except ValueError:
                return text in (FAULTY, "1970-01-01T00:00:00Z")
    return text == value

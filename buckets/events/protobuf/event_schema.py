"""What the fields of a message of Protobuf can be in an event schema; those of messages inside are named by paths."""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from buckets.errors import BucketsError
from buckets.events.decoded import SchemaError
from buckets.events.imported_schema import ImportedField, in_list
from buckets.events.protobuf.proto_schema import message_named
from buckets.events.protobuf.wanted import CONFLUENT_DECIMAL, MONEY, ONE_VALUE, TIMESTAMP, is_map, is_wrapper
from buckets.validation import did_you_mean

_FLOATS = {FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double"}
_SCALE = "as a measure it needs a scale, as in {scale: 2}"


def imported_fields(file: FileDescriptor, name: str | None, wanted: tuple[str, str]) -> list[ImportedField]:
    """Return the fields of a message.

    Args:
        file: the schema.
        name: of the message; without it the only one that has the wanted fields is taken.
        wanted: the fields that it must have.

    Raises:
        SchemaError: there is no such message, or several without a name.
        BucketsError: a wanted field is in none of several messages.
    """
    if name is not None or len(file.message_types_by_name) == 1:
        return list(_fields(message_named(file, name), "", ()))
    by_message = {message.full_name: list(_fields(message, "", ())) for message in file.message_types_by_name.values()}
    fitting = {of: fields for of, fields in by_message.items() if set(wanted) <= {field.name for field in fields}}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if not by_message:
        message = "has no message"
        raise SchemaError(message)
    if fitting:
        message = f"has several messages with {' and '.join(wanted)}: {', '.join(fitting)}; name one with --message"
        raise SchemaError(message)
    names = [field.name for fields in by_message.values() for field in fields]
    missing = next((each for each in wanted if each not in names), wanted[0])
    message = (
        f"none of the messages {', '.join(by_message)} has both {wanted[0]} and {wanted[1]}"
        f"{did_you_mean(missing, names)}; name one with --message"
    )
    raise BucketsError(message)


def _fields(message: Descriptor, before: str, outer: tuple[str, ...]) -> Iterator[ImportedField]:
    """Yield the fields of a message, and those of messages in it but for such that contain themselves."""
    for field in message.fields:
        name = f"{before}{field.name}"
        inside = field.message_type
        if field.is_repeated:
            if is_map(field):
                yield ImportedField(name, reason="is a map", is_single=False)
            else:
                yield from in_list(name, _of_element(field, (*outer, message.full_name)))
        elif inside is None:
            yield _single(name, field)
        elif is_wrapper(field):
            yield _single(name, inside.fields_by_name["value"])
        elif inside.full_name == TIMESTAMP:
            yield ImportedField(name, "string")
        elif inside.full_name == MONEY:
            yield ImportedField(f"{name}.currency_code", "string")
            yield ImportedField(name, reason=f"is an amount; {_SCALE}")
        elif inside.full_name == CONFLUENT_DECIMAL:
            yield ImportedField(name, reason=f"is a decimal; {_SCALE}")
        elif inside.full_name in (*outer, message.full_name) or not inside.fields:
            yield ImportedField(name, reason=f"is of type {inside.full_name}", is_single=False)
        else:
            yield from _fields(inside, f"{name}.", (*outer, message.full_name))


def _of_element(field: FieldDescriptor, outer: tuple[str, ...]) -> Iterator[ImportedField]:
    """Yield what an element of a list is, or the fields of one that is a message."""
    inside = field.message_type
    if inside is None:
        yield _single("", field)
    elif is_wrapper(field):
        yield _single("", inside.fields_by_name["value"])
    elif inside.full_name in (*ONE_VALUE, *outer) or not inside.fields:
        yield ImportedField("", reason=f"is of type {inside.full_name}")
    else:
        yield from _fields(inside, "", outer)


def _single(name: str, field: FieldDescriptor) -> ImportedField:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return ImportedField(name, "string", unit="iso8601")
        case FieldDescriptor.TYPE_ENUM:
            return ImportedField(name, "string")
        case FieldDescriptor.TYPE_BOOL:
            return ImportedField(name, "boolean")
        case FieldDescriptor.TYPE_BYTES:
            return ImportedField(name, reason="is of type bytes")
        case kind if kind in _FLOATS:
            return ImportedField(name, reason=f"is a {_FLOATS[kind]}; {_SCALE}")
    return ImportedField(name, "long")

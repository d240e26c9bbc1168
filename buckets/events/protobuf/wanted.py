"""Finds the declared fields of an event schema in a Protobuf message, by name or by number.

In Protobuf the number identifies a field. So a name that a message lacks is looked up by its earlier numbers: a renamed
field is read as before.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from buckets.errors import BucketsError
from buckets.events.conversion import A_LIST, NO_LIST
from buckets.events.debezium import ImportedField, in_list
from buckets.events.decoded import NO_OBJECT, Numbers, PinnedProtobuf, SchemaError
from buckets.events.field_paths import Path, array_path, path_of
from buckets.events.protobuf.proto_schema import message_named, messages_of
from buckets.json_text import write_json
from buckets.validation import did_you_mean

TIMESTAMP = "google.protobuf.Timestamp"
CONFLUENT_DECIMAL, MONEY = "confluent.type.Decimal", "google.type.Money"
ONE_VALUE = (TIMESTAMP, CONFLUENT_DECIMAL, MONEY)  # Messages that hold one value
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = frozenset(("google.type.Decimal", *(f"google.protobuf.{kind}Value" for kind in _WRAPPED)))
_NO_LIST_BUT_OBJECT = "is an object, and must be a list"
Way = tuple[FieldDescriptor | int, ...]  # Fields, each of the message before it, and numbers of elements of lists


@dataclass(frozen=True)
class WantedField:
    """A declared field in a message."""

    way: Way = ()  # from the message to its value; empty where there is none. Of an array to its list.
    fault: str = ""  # why it can have no value; empty where it can
    inner: Way | None = None  # of an array, the way from an element to its value; None of all others


def wanted_fields(message: Descriptor, names: Sequence[str], numbers: Mapping[str, Numbers]) -> dict[str, WantedField]:
    """Find each declared field in a message, by names or by the numbers that the names on its path had before."""
    found = {}
    for name in names:
        way = _way(message, _path(name)) or _way(message, _path(name), numbers.get(name, ()))
        is_nowhere = not way and _leads_into_value(message, name)
        found[name] = WantedField(fault=NO_OBJECT) if is_nowhere else _wanted(way, name)
    return found


def pinned_with(pinned: PinnedProtobuf, file: FileDescriptor, names: Sequence[str]) -> PinnedProtobuf:
    """Return the pinned schemas with the numbers that declared fields have in a newer schema."""
    numbers = dict(pinned.numbers)
    for message in messages_of(file):
        ways = {name: _way(message, _path(name)) for name in names}
        found = {name: tuple(field.number for field in _fields(way)) for name, way in ways.items() if way}
        if found:
            numbers[message.full_name] = numbers.get(message.full_name, {}) | found
    return pinned.model_copy(update={"numbers": numbers})


def _path(name: str) -> Path:
    array = array_path(name)
    return path_of(name) if array is None else (*path_of(array.outer), *array.steps)


def _fields(way: Way) -> list[FieldDescriptor]:
    return [step for step in way if not isinstance(step, int)]


def _way(message: Descriptor, path: Path, numbers: Numbers | None = None) -> Way:
    """Return the fields along a path, by name or else by number; empty if the path ends early."""
    steps = [step for step in path if isinstance(step, str)]
    if numbers is not None and len(numbers) != len(steps):
        return ()
    keys = iter(steps if numbers is None else numbers)
    way: list[FieldDescriptor | int] = []
    inside: Descriptor | None = message
    for step in path:
        if isinstance(step, int):
            way.append(step)
            continue
        fields = {} if inside is None else inside.fields_by_name if numbers is None else inside.fields_by_number
        field = fields.get(next(keys))
        if field is None:
            return ()
        way.append(field)
        inside = field.message_type
    return tuple(way)


def _leads_into_value(message: Descriptor, name: str) -> bool:
    """Return whether a path leads into a single value, a list or a map, which has no fields."""
    path = _path(name)
    if array_path(name) is not None or any(isinstance(step, int) for step in path):
        return False
    way = next(filter(None, (_way(message, path[:end]) for end in range(len(path) - 1, 0, -1))), ())
    fields = _fields(way)
    return bool(fields) and (fields[-1].message_type is None or any(field.is_repeated for field in fields))


def _wanted(way: Way, name: str) -> WantedField:
    if not way:
        return WantedField()
    array = array_path(name)
    last = way[-1]
    if not isinstance(last, int) and is_wrapper(last):
        way = (*way, last.message_type.fields_by_name["value"])
    if array is None:
        fault = _fault(way)
        return WantedField(fault=fault) if fault else WantedField(way)
    length = len(path_of(array.outer))
    outer, inner = way[:length], way[length:]
    fault = _fault(outer[:-1]) or _list_fault(outer[-1], inner) or _fault(inner)
    return WantedField(fault=fault) if fault else WantedField(outer, inner=inner)


def _fault(way: Way) -> str:
    """Return why a path leads to no value; empty if it leads to one."""
    for step, following in itertools.pairwise((*way, None)):
        if step is None or isinstance(step, int):
            if isinstance(following, int):
                return NO_LIST
        elif is_map(step):
            return "is an object, and must be one value"
        elif isinstance(following, int) and not step.is_repeated:
            return NO_LIST if step.message_type is None else _NO_LIST_BUT_OBJECT
        elif not isinstance(following, int) and step.is_repeated:
            return A_LIST
    return ""


def _list_fault(field: FieldDescriptor | int, inner: Way) -> str:
    """Return why a field cannot be the list of an array; empty if it can."""
    if isinstance(field, int):
        return NO_LIST
    if is_map(field) or (field.message_type is not None and not field.is_repeated):
        return _NO_LIST_BUT_OBJECT
    if not field.is_repeated:
        return NO_LIST
    return "is a list of objects, and must be one of single values" if field.message_type and not inner else ""


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_wrapper(field: FieldDescriptor) -> bool:
    """Return whether a field is a message that wraps one value, so that it may be null."""
    return field.message_type is not None and field.message_type.full_name in _WRAPPERS


_FLOATS = {FieldDescriptor.TYPE_FLOAT: "float", FieldDescriptor.TYPE_DOUBLE: "double"}
_SCALE = "as a measure it needs a scale, as in {scale: 2}"


def imported_fields(file: FileDescriptor, name: str | None, wanted: tuple[str, str]) -> list[ImportedField]:
    """Return the fields of a message; without a name, of the only one with the wanted fields, else SchemaError."""
    if name is not None or len(file.message_types_by_name) == 1:
        return list(_imported_fields(message_named(file, name), "", ()))
    by_message = {
        message.full_name: list(_imported_fields(message, "", ())) for message in file.message_types_by_name.values()
    }
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


def _imported_fields(message: Descriptor, before: str, outer: tuple[str, ...]) -> Iterator[ImportedField]:
    """Yield the fields of a message and of nested messages, except those that contain themselves."""
    outer = (*outer, message.full_name)
    for field in message.fields:
        name = f"{before}{field.name}"
        if is_map(field):
            yield ImportedField(name, reason="is a map", is_single=False)
        elif field.is_repeated:
            yield from in_list(name, _imported(field, "", outer))
        else:
            yield from _imported(field, name, outer)


def _imported(field: FieldDescriptor, name: str, outer: tuple[str, ...]) -> Iterator[ImportedField]:
    """Yield the possible roles of a field, or the fields of its message; a list element has no name."""
    inside = field.message_type
    if inside is None:
        yield _single(name, field)
    elif is_wrapper(field):
        yield _single(name, inside.fields_by_name["value"])
    elif inside.full_name in outer or not inside.fields or (not name and inside.full_name in ONE_VALUE):
        yield ImportedField(name, reason=f"is of type {inside.full_name}", is_single=False)
    elif inside.full_name == TIMESTAMP:
        yield ImportedField(name, "string")
    elif inside.full_name == MONEY:
        yield ImportedField(f"{name}.currency_code", "string")
        yield ImportedField(name, reason=f"is an amount; {_SCALE}")
    elif inside.full_name == CONFLUENT_DECIMAL:
        yield ImportedField(name, reason=f"is a decimal; {_SCALE}")
    else:
        yield from _imported_fields(inside, f"{name}." if name else "", outer)


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


_SCALARS = {bool: "flag", int: "number", str: "text"}
"""By type of a value, its field in a message with one field for each type."""
_ENTRY = {"key", "value"}
_NAMES = "names"


def protobuf_bytes(message: Descriptor, value: dict[str, Any]) -> bytes:
    """Encode an object as a message, without a prefix.

    A text field takes any value as JSON. Null and missing fields are not set.
    """
    written: bytes = _fill(message_factory.GetMessageClass(message)(), value).SerializeToString(deterministic=True)
    return written


def protobuf_value(message: Descriptor, content: bytes) -> dict[str, Any]:
    """Decode a message, null for unset fields; ValueError if it is broken."""
    read = message_factory.GetMessageClass(message)()
    try:
        read.ParseFromString(content)
    except DecodeError:
        fault = "is not a message of its schema"
        raise ValueError(fault) from None
    return _plain_fields(read)


@lru_cache(maxsize=256)
def _forms(message: Descriptor) -> list[tuple[str, str]]:
    return [(field.name, _form(field)) for field in message.fields]


def _form(field: FieldDescriptor) -> str:
    inside = field.message_type
    if inside is None:
        return "list" if field.is_repeated else "plain"
    if field.is_repeated:
        return "entries" if set(inside.fields_by_name) == _ENTRY else "messages"
    return "moment" if inside.full_name == TIMESTAMP else "names" if _NAMES in inside.fields_by_name else "single"


def _fill(made: Any, value: dict[str, Any]) -> Any:
    for name, form in _forms(made.DESCRIPTOR):
        given = value.get(name)
        if given is None:
            continue
        if form == "plain":
            setattr(made, name, write_json(given) if isinstance(given, dict | list) else given)
            continue
        field = getattr(made, name)
        match form:
            case "list":
                field.extend(given)
            case "entries":
                for key, each in given.items():
                    _fill_scalar(field.add(key=key).value, each)
            case "messages":
                for each in given:
                    _fill(field.add(), each)
            case "moment":
                field.seconds, field.nanos = given // 1000, given % 1000 * 1_000_000
                field.SetInParent()
            case "names":
                field.SetInParent()
                field.names.extend(given)
            case _:
                _fill_scalar(field, given)
    return made


def _fill_scalar(made: Any, value: Any) -> None:
    """Set the field for a value's type in a message with one field per type; a list as JSON, null as none."""
    made.SetInParent()
    if value is not None:
        is_list = isinstance(value, list)
        setattr(made, _SCALARS[str if is_list else type(value)], write_json(value) if is_list else value)


def _plain_fields(message: Message) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value: Any = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if not field.is_repeated:
        return _plain_single(value)
    if set(field.message_type.fields_by_name) == _ENTRY:
        return {entry.key: _plain_single(entry.value) for entry in value}
    return [_plain_fields(each) for each in value]


def _plain_single(message: Any) -> Any:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        return message.ToMilliseconds()
    if _NAMES in message.DESCRIPTOR.fields_by_name:
        return list(message.names)
    (oneof,) = message.DESCRIPTOR.oneofs
    kind = message.WhichOneof(oneof.name)
    return None if kind is None else getattr(message, kind)

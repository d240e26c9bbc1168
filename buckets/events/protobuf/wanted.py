"""The fields that an event schema declares, found in a message of Protobuf by their names, or by their numbers.

A number is what a field is known by in Protobuf. So a name that a message does not have is looked for by the numbers
that it had: a field that was renamed is read as before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from buckets.events.conversion import A_LIST, NO_LIST
from buckets.events.field_paths import list_path, path_of, steps_of
from buckets.events.written_values import NO_OBJECT

TIMESTAMP = "google.protobuf.Timestamp"
CONFLUENT_DECIMAL, MONEY = "confluent.type.Decimal", "google.type.Money"
PARTS = {TIMESTAMP: ("seconds", "nanos"), CONFLUENT_DECIMAL: ("value", "scale"), MONEY: ("units", "nanos")}
"""Messages that are one value, with the fields that it is made of."""
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = frozenset(("google.type.Decimal", *(f"google.protobuf.{kind}Value" for kind in _WRAPPED)))
_Step = TypeVar("_Step", str, int)
Numbers = tuple[int, ...]
NumbersOf = Mapping[str, Numbers]
"""By declared field the numbers of the fields on the way to it, and its own."""


@dataclass(frozen=True)
class WantedField:
    """A declared field in a message.

    Attributes:
        way: the fields on the way to it, each a message that is no list, and itself; empty where there is no such. Of
            an array it ends with its list.
        fault: why it can have no value; empty where it can.
        inner: of a field in a list, the fields from an element to its value; None of all others.
    """

    way: tuple[FieldDescriptor, ...] = ()
    fault: str = ""
    inner: tuple[FieldDescriptor, ...] | None = None

    @property
    def last(self) -> FieldDescriptor:
        """The field itself."""
        return self.way[-1]

    @property
    def numbers(self) -> Numbers:
        """The numbers of the fields on the way, and its own."""
        return tuple(field.number for field in (*self.way, *(self.inner or ())))


def wanted_fields(message: Descriptor, names: Sequence[str], numbers: NumbersOf) -> list[WantedField]:
    """Return what each declared field is in a message.

    Args:
        message: the type.
        names: the declared fields; a path such as "customer.country" leads into messages.
        numbers: those that fields had before.
    """
    found = {name: _by_name(message, name) or _by_number(message, numbers.get(name, ())) for name in names}
    return [
        WantedField(fault=NO_OBJECT) if not way and _leads_into_value(message, name) else _wanted(way, name)
        for name, way in found.items()
    ]


def field_numbers(message: Descriptor, names: Sequence[str]) -> dict[str, Numbers]:
    """Return the numbers of those declared fields that a message has by their names."""
    ways = {name: _by_name(message, name) for name in names}
    return {name: tuple(field.number for field in way) for name, way in ways.items() if way}


def _by_name(message: Descriptor, name: str) -> tuple[FieldDescriptor, ...]:
    return _way(message, steps_of(name), lambda inside, step: inside.fields_by_name.get(step))


def _by_number(message: Descriptor, numbers: Numbers) -> tuple[FieldDescriptor, ...]:
    return _way(message, numbers, lambda inside, step: inside.fields_by_number.get(step))


def _way(
    message: Descriptor, steps: Iterable[_Step], find: Callable[[Descriptor, _Step], FieldDescriptor | None]
) -> tuple[FieldDescriptor, ...]:
    """Return the fields on a way from a message inwards; none where it ends before its last step."""
    way = []
    inside: Descriptor | None = message
    for step in steps:
        field = None if inside is None else find(inside, step)
        if field is None:
            return ()
        way.append(field)
        inside = field.message_type
    return tuple(way)


def _leads_into_value(message: Descriptor, name: str) -> bool:
    """Return whether a field on the way that a path names is a single value, a list or a map, in which nothing lies."""
    if list_path(name) is not None:
        return False
    path = steps_of(name)
    way = next(filter(None, (_by_name(message, ".".join(path[:end])) for end in range(len(path) - 1, 0, -1))), None)
    return way is not None and (way[-1].message_type is None or any(field.is_repeated for field in way))


def _wanted(way: tuple[FieldDescriptor, ...], name: str) -> WantedField:
    in_list = list_path(name)
    if not way:
        return WantedField()
    length = len(way) if in_list is None else len(path_of(in_list.outer))
    singles = way if in_list is None else (*way[: length - 1], *way[length:])
    for field in singles:
        if field.is_repeated:
            return WantedField(fault="is an object, and must be one value" if is_map(field) else A_LIST)
    if is_wrapper(way[-1]):
        way = (*way, way[-1].message_type.fields_by_name["value"])
    if in_list is None:
        return WantedField(way)
    fault = _list_fault(way[length - 1], way[length:])
    return WantedField(fault=fault) if fault else WantedField(way[:length], inner=way[length:])


def _list_fault(field: FieldDescriptor, inner: tuple[FieldDescriptor, ...]) -> str:
    """Return why a field is no list of values of an array; empty where it is one."""
    if is_map(field) or (field.message_type is not None and not field.is_repeated):
        return "is an object, and must be a list"
    if not field.is_repeated:
        return NO_LIST
    if field.type == FieldDescriptor.TYPE_GROUP:
        return "is a list of groups, and must be one of messages"
    return "is a list of objects, and must be one of single values" if field.message_type and not inner else ""


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_wrapper(field: FieldDescriptor) -> bool:
    """Return whether a field is one value in a message around it, so that it may be null."""
    return field.message_type is not None and field.message_type.full_name in _WRAPPERS

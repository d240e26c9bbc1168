"""Columns of results as Python programs want them: keys, events and terms as structs, not as the JSON of the tables."""

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from buckets.events.conversion import column_types
from buckets.events.schema import EventSchema
from buckets.outputs.columns import DIFFERING, OBJECTS

_VALUES = ("value", "lower", "upper")
_MOST_DIGITS = 38
_OF_MEASURE = 19
"""Digits of the largest integer of 64 bits."""
_TERMS = pa.list_(
    pa.struct(
        [
            pa.field("name", pa.string()),
            pa.field("function", pa.string()),
            pa.field("of", pa.string()),
            pa.field("window", pa.string()),
            pa.field("where", pa.string()),
            pa.field("group_by", pa.list_(pa.string())),
            pa.field("value", pa.string()),
            pa.field("exact", pa.bool_()),
            pa.field("lower", pa.string()),
            pa.field("upper", pa.string()),
            pa.field("may_be_null", pa.bool_()),
            pa.field("count", pa.int64()),
            pa.field("warm", pa.bool_()),
        ]
    )
)


def field_types(schema: EventSchema) -> dict[str, pa.DataType]:
    """Return the types of the fields of events: measures are decimals with their digits."""
    measures = {name: pa.decimal128(_OF_MEASURE, measure.scale) for name, measure in schema.measures.items()}
    named = {schema.event_id: pa.string(), schema.event_time.field: pa.int64()}
    return named | column_types(schema) | measures


def with_structs(
    table: pa.Table, known: Mapping[str, pa.DataType] | None = None, key_fields: Iterable[str] = ()
) -> pa.Table:
    """Return results with `key`, `event` and `terms` as structs.

    Args:
        table: results, in which these are JSON as text, or objects.
        known: the types of the fields of events and keys; where it is None they are those of the values there are.
            All fields of an event that are known are there, with nulls.
        key_fields: the fields of keys that are there in any case, with nulls.
    """
    for name in OBJECTS:
        index = table.schema.get_field_index(name)
        if index >= 0 and not pa.types.is_nested(table.schema.field(index).type):
            encoded = table.column(index).combine_chunks().dictionary_encode()
            values = [_object(value) for value in encoded.dictionary.to_pylist()]
            there = key_fields if name == "key" else () if name in DIFFERING else known or ()
            kind = _TERMS if name == "terms" else _struct_of(values, known or {}, there)
            parsed = pa.array([_fitting(value, kind) for value in values], kind)
            table = table.set_column(index, name, parsed.take(encoded.indices))
    return table


def with_digits(table: pa.Table, digits: int) -> pa.Table:
    """Return results whose values have so many digits after the point, which is as many as any rule's have."""
    for name in _VALUES:
        index = table.schema.get_field_index(name)
        if index >= 0:
            table = table.set_column(index, name, table.column(index).cast(pa.decimal128(_MOST_DIGITS, digits)))
    return table


def _object(written: Any) -> Any:
    return json.loads(written) if isinstance(written, str) else written


def _struct_of(values: Iterable[Any], known: Mapping[str, pa.DataType], there: Iterable[str]) -> pa.DataType:
    """Return the type that holds all values, and has some fields in any case."""
    seen: dict[str, set[type]] = {name: set() for name in there}
    elements: dict[str, set[type]] = {}
    for value in values:
        for name, part in (value or {}).items():
            seen.setdefault(name, set()).add(type(part))
            if isinstance(part, list):
                elements.setdefault(name, set()).update(map(type, part))
    kinds = {name: _type_of(kinds) for name, kinds in seen.items()}
    kinds |= {name: pa.list_(_type_of(of)) for name, of in elements.items() if seen[name] <= {list, type(None)}}
    return pa.struct([(name, known.get(name) or kind) for name, kind in kinds.items()])


def _type_of(kinds: set[type]) -> pa.DataType:
    of_values = kinds - {type(None)}
    if of_values == {bool}:
        return pa.bool_()
    return pa.int64() if of_values == {int} else pa.string()


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value as a type takes it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_fitting(item, kind.value_type) for item in value]
    return _plain(kind)(value)


def _plain(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(str(value))
    if pa.types.is_string(kind):
        return lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return lambda value: value

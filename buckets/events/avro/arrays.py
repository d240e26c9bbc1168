"""Arrays as columns of lists, and single items of lists: the walk through messages says where items begin.

Another walk reads the items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events import conversion
from buckets.events.avro.avro_type import NO_RECORD, AvroSchemaError, AvroType
from buckets.events.avro.columns import by_leaf, field_values
from buckets.events.avro.program import ARRAY, Program, item_program_of
from buckets.events.avro.scan import DEEPEST, NO_LEAF, scan_items
from buckets.events.field_paths import list_path
from buckets.events.moment_text import Faults
from buckets.events.schema import EventSchema
from buckets.events.written_values import (
    NO_OBJECT,
    WrittenValues,
    joined,
    of_lists_or_items,
)
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
_OBJECTS = ("record", "map")


@dataclass(frozen=True)
class ItemReader:
    """How the items of an array are walked through, and the type of each node."""

    program: Program
    types: Sequence[AvroType]


def item_readers(
    names: Sequence[str], slots: Sequence[int], program: Program, types: Sequence[AvroType]
) -> dict[str, dict[int, ItemReader]]:
    """Return by declared field in a list, and by the node of the list, what reads the items.

    Args:
        names: the declared fields.
        slots: that of each.
        program: of the messages.
        types: that of each node.

    Raises:
        AvroSchemaError: a field is in a list of a list.
    """
    readers = {}
    for name, slot in zip(names, slots, strict=True):
        in_list = list_path(name)
        if in_list is not None:
            if "[" in in_list.inner:
                message = f"has no {name!r} that can be read: it is in a list of a list"
                raise AvroSchemaError(message)
            nodes = np.flatnonzero((program.kind == ARRAY) & (program.slot == slot)).tolist()
            readers[name] = {
                node: ItemReader(*item_program_of(types[node].branches[0], in_list.inner)) for node in nodes
            }
    return readers


def array_values(
    name: str,
    leaves: Int64s,
    values: WrittenValues,
    types: Sequence[AvroType],
    readers: Mapping[int, ItemReader],
    schema: EventSchema,
) -> tuple[pa.Array, Faults]:
    """Return the column of an array, or of a field in an item of a list, and what is wrong with its values.

    Args:
        name: of the field.
        leaves: int64 `(rows,)`, for each the index of its type; `NO_LEAF` where there is none, which is null.
        values: of all rows.
        types: those of the schema.
        readers: by the index of a list, what reads its items.
        schema: the event schema.
    """
    kind = pa.list_(conversion.ARROW_TYPES[schema.arrays[name]]) if name in schema.arrays else pa.null()

    def read(leaf: int, rows: Int64s) -> tuple[pa.Array, Faults]:
        if leaf in readers:
            return _items(name, values.of(rows), readers[leaf], schema)
        return pa.nulls(len(rows), kind), dict.fromkeys(range(len(rows)), _no_list(types[leaf]))

    parts, at, faults = by_leaf(leaves, read)
    if not parts:
        return pa.nulls(len(leaves)), faults
    column, of_text = joined(parts)
    faults |= {int(np.flatnonzero(at == place)[0]): reason for place, reason in of_text.items()}
    return column.take(pa.array(at, mask=at < 0)), faults


def _no_list(kind: AvroType) -> str:
    """Return why values of a type are no lists."""
    if kind.kind == NO_RECORD.kind:
        return NO_OBJECT
    return "is an object, and must be a list" if kind.kind in _OBJECTS else conversion.NO_LIST


def _items(name: str, lists: WrittenValues, reader: ItemReader, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return lists of one type as a column, or one item of each."""
    counts, stack = np.zeros(len(lists.numbers), np.int64), np.empty((3, DEEPEST), np.int64)
    leaves, numbers, lengths = np.zeros((3, 1, 1), np.int64)
    begin = read_only(lists.numbers)
    scan_items(reader.program, lists.data, begin, True, counts, leaves, numbers, lengths, stack)
    too_many = counts > conversion.MOST_ELEMENTS
    faults = {int(row): conversion.too_many(int(counts[row])) for row in np.flatnonzero(too_many)}
    counts[too_many] = 0
    chosen = np.flatnonzero(counts)
    items = int(counts.sum())
    leaves = np.full((1, items), NO_LEAF, np.int64)
    numbers, lengths = np.zeros((2, 1, items), np.int64)
    of_chosen = np.empty(len(chosen), np.int64)
    begin = read_only(lists.numbers[chosen])
    scan_items(reader.program, lists.data, begin, False, of_chosen, leaves, numbers, lengths, stack)
    written = WrittenValues(lists.data, numbers[0], lengths[0])
    elements, of_elements = field_values(name, leaves[0], written, reader.types, schema)
    column, of_lists = of_lists_or_items(name, elements, of_elements, counts, np.ones(len(counts), np.bool_), schema)
    return column, of_lists | faults

"""Fields inside objects: a name such as "customer.address.country" that no field has is the path to one.

If a step of the path is missing, so is the field; if it is not an object, the event is a dead letter. A number in
brackets selects one element of a list: "debtor.accounts[0].id". Empty brackets select all elements: "items[].sku" is
the `sku` of every object in the list `items`, and "tags[]" the elements of `tags` themselves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from buckets.expressions.expression import ELEMENTS, is_array
from buckets.list_columns import element_type, list_of, plain_list, without_views

Step = str | int
Path = tuple[Step, ...]  # Names of fields, and numbers of elements of lists
_INDEXED = re.compile(r"([^\[\]]+)((?:\[\d{1,5}\])+)")
_INDEX = re.compile(r"\[(\d+)\]")


class ArrayPath(NamedTuple):
    """The path of an array: to its list, and inside each element; the latter is empty if elements are the values."""

    outer: str
    inner: str

    @property
    def steps(self) -> Path:
        """The names from an element to its value."""
        return path_of(self.inner) if self.inner else ()


@cache
def path_of(name: str) -> Path:
    """Return the steps to a field: names of objects and its own name, and indexes into lists.

    "debtor.accounts[0].id" has the steps "debtor", "accounts", 0 and "id"; a top-level field has one step.
    """
    steps: list[Step] = []
    for part in name.split("."):
        indexed = _INDEXED.fullmatch(part)
        steps += [part] if indexed is None else [indexed[1], *map(int, _INDEX.findall(indexed[2]))]
    return tuple(steps)


def name_of(path: Path) -> str:
    """Return the name of a path; the inverse of `path_of`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@cache
def array_path(name: str) -> ArrayPath | None:
    """Return the path of an array; None if the name is not that of an array."""
    outer, _, inner = name.partition(ELEMENTS)
    is_one = name.count(ELEMENTS) == 1 and "" not in path_of(outer) and (not inner or "" not in path_of(inner)[1:])
    return ArrayPath(outer, inner[1:]) if is_one and (not inner or (inner[0] == "." and inner != ".")) else None


def steps_of(name: str) -> tuple[str, ...]:
    """Return the names of all objects and lists on the way to a field, and its own name."""
    return tuple(step for step in path_of(name.replace(ELEMENTS, "")) if isinstance(step, str))


@cache
def outer_name(name: str) -> str:
    """Return the column to read for a field: the list if the field is inside one, else the field's own name."""
    index, array = _INDEX.search(name), array_path(name)
    if index is not None and ELEMENTS not in name[: index.start()] and any(isinstance(s, int) for s in path_of(name)):
        return name[: index.start()]
    return name if array is None else array.outer


def containers(names: Iterable[str]) -> list[str]:
    """Return the outermost objects and lists on the paths, each once, unless a field has that name."""
    declared = set(names)
    leading = (name for name in names if is_array(name) or len(path_of(name)) > 1)
    outermost = dict.fromkeys(steps_of(outer_name(name))[0] for name in leading)
    return [name for name in outermost if name not in declared]


def to_list(name: str) -> Path:
    """Return the steps to a field, or to the list of an array."""
    array = array_path(name)
    return path_of(name if array is None else array.outer)


def prefixes(names: Iterable[str]) -> list[Path]:
    """Return all paths to objects, lists and nested fields, each once."""
    paths = list(map(to_list, names))
    return list(dict.fromkeys(path[: length + 1] for path in paths if len(path) > 1 for length in range(len(path))))


def reachable(names: Sequence[str], columns: pa.Schema) -> list[str]:
    """Return the columns of a table, and those names that are paths into its structs or lists."""
    return [*columns.names, *(name for name in names if name not in columns.names and _is_inside(name, columns))]


def type_of(name: str, columns: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of the field at a path; None if missing."""
    if columns.names.count(name) == 1:
        return columns.field(name).type
    return _type_at(columns.field(str(path_of(name)[0])).type, path_of(name)[1:]) if _is_inside(name, columns) else None


def read_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column, or the struct field at the path that its name is; None if missing.

    An array is a column of lists.
    """
    if name in rows.schema.names:
        return rows.column(name)
    if not _is_inside(name, rows.schema):
        return None
    outermost, *inside = to_list(name)
    found = _stepped(rows.column(str(outermost)), inside)
    array = array_path(name)
    if array is None or element_type(found.type) is None:
        return found
    lists = plain_list(found)
    elements = _stepped(lists.flatten(), array.steps)
    lengths = pc.list_value_length(lists)
    return list_of(elements, lengths.fill_null(0).to_numpy(), lists.is_valid().to_numpy(zero_copy_only=False))


def _stepped(column: pa.Array, steps: Sequence[Step]) -> pa.Array:
    for step in steps:
        column = pc.struct_field(column, step) if isinstance(step, str) else element_at(plain_list(column), step)
    return column


def element_at(lists: pa.ListArray, index: int) -> pa.Array:
    """Return one element of each list, null where the list is too short or missing."""
    there = pc.fill_null(pc.greater(pc.list_value_length(lists), index), False).to_numpy(zero_copy_only=False)
    plain = without_views(lists.type.value_type)
    values = lists.values if lists.type.value_type == plain else lists.values.cast(plain)
    return values.take(pa.array(lists.offsets.to_numpy()[:-1] + index, mask=~there))


def _is_inside(name: str, columns: pa.Schema) -> bool:
    """Return whether a name leads through structs and lists to a field, by names that are unique in each struct."""
    outermost, *inside = to_list(name)
    if columns.names.count(outermost) != 1:
        return False
    kind = _type_at(columns.field(str(outermost)).type, inside)
    array = array_path(name)
    if kind is None or array is None:
        return kind is not None
    of_elements = element_type(kind)
    # Anything but a list becomes a fault of its rows.
    return of_elements is None or _type_at(of_elements, array.steps) is not None


def _type_at(kind: pa.DataType, steps: Sequence[Step]) -> pa.DataType | None:
    """Return the type at the end of a path; None if it is missing."""
    found: pa.DataType | None = kind
    for step in steps:
        if found is not None and isinstance(step, int):
            found = element_type(found)
        elif found is None or not pa.types.is_struct(found) or len(found.get_all_field_indices(step)) != 1:
            return None
        else:
            found = found.field(step).type
    return found


def walk(value: object, path: Sequence[Step]) -> object:
    """Return the value at a path inside a value, None if missing; TypeError if a value on the way has another type."""
    for step in path:
        if value is None:
            return None
        if isinstance(step, int) and isinstance(value, list):
            value = value[step] if step < len(value) else None
        elif isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        else:
            raise TypeError
    return value

"""Fields inside of objects: a name such as "customer.address.country" that no field has is the path to one.

A field whose own name has points in it comes first, wherever there is one. An object that is missing on the way makes
the field missing; a value that is none makes the event a dead letter.

The name of an array leads to a list, and goes on in each of its elements: "items[].sku" is what the objects of the list
`items` have as `sku`, "tags[]" the elements of `tags` themselves. An element without a value is a null in the array.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from buckets.expressions.expression import ELEMENTS, is_array
from buckets.list_columns import element_type, list_of, plain_list

Path = tuple[str, ...]


class ArrayPath(NamedTuple):
    """The path of an array: to its list, and from there in each element; nothing where elements are the values."""

    outer: str
    inner: str

    @property
    def steps(self) -> Path:
        """The names from an element to its value."""
        return path_of(self.inner) if self.inner else ()


@cache
def path_of(name: str) -> Path:
    """Return the names of the objects on the way to a field, and its own; a single one of a field that is in none."""
    return tuple(name.split("."))


@cache
def array_path(name: str) -> ArrayPath | None:
    """Return the path of an array; None for a name that is none of one."""
    outer, _, inner = name.partition(ELEMENTS)
    is_one = name.count(ELEMENTS) == 1 and "" not in path_of(outer) and (not inner or "" not in path_of(inner)[1:])
    return ArrayPath(outer, inner[1:]) if is_one and (not inner or (inner[0] == "." and inner != ".")) else None


def steps_of(name: str) -> Path:
    """Return the names of all objects and lists on the way to a field, and its own."""
    return path_of(name.replace(ELEMENTS, ""))


def outer_name(name: str) -> str:
    """Return what is to be read for a field: of an array its list."""
    array = array_path(name)
    return name if array is None else array.outer


def containers(names: Iterable[str]) -> list[str]:
    """Return the outermost objects and lists that names lead into, each once, without fields of that name."""
    declared = set(names)
    leading = (name for name in names if is_array(name) or len(path_of(name)) > 1)
    outermost = dict.fromkeys(path_of(outer_name(name))[0] for name in leading)
    return [name for name in outermost if name not in declared]


def prefixes(names: Iterable[str]) -> list[Path]:
    """Return all paths to objects, lists and fields inside of objects, each once."""
    paths = [path_of(outer_name(name)) for name in names]
    return list(dict.fromkeys(path[: length + 1] for path in paths if len(path) > 1 for length in range(len(path))))


def reachable(names: Sequence[str], columns: pa.Schema) -> list[str]:
    """Return the columns of a table, and those names that are paths to fields of its structs, or in its lists."""
    return [*columns.names, *(name for name in names if name not in columns.names and _is_inside(name, columns))]


def read_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column, or the field of a struct to which its name is the path; None where there is neither.

    An array is a column of lists.
    """
    if name in rows.schema.names:
        return rows.column(name)
    if not _is_inside(name, rows.schema):
        return None
    outermost, *inside = path_of(outer_name(name))
    found = _stepped(rows.column(outermost), inside)
    array = array_path(name)
    if array is None or element_type(found.type) is None:
        return found
    lists = plain_list(found)
    elements = _stepped(lists.flatten(), array.steps)
    lengths = pc.list_value_length(lists)
    return list_of(elements, lengths.fill_null(0).to_numpy(), lists.is_valid().to_numpy(zero_copy_only=False))


def _stepped(column: pa.Array, steps: Sequence[str]) -> pa.Array:
    for step in steps:
        column = pc.struct_field(column, step)
    return column


def _is_inside(name: str, columns: pa.Schema) -> bool:
    """Return whether a name leads through structs to a field; none of them has a name twice."""
    outermost, *inside = path_of(outer_name(name))
    if columns.names.count(outermost) != 1:
        return False
    kind = _type_at(columns.field(outermost).type, inside)
    array = array_path(name)
    if kind is None or array is None:
        return kind is not None
    of_elements = element_type(kind)
    # What is no list becomes a fault of its rows.
    return of_elements is None or _type_at(of_elements, array.steps) is not None


def _type_at(kind: pa.DataType, steps: Sequence[str]) -> pa.DataType | None:
    for step in steps:
        if not pa.types.is_struct(kind) or len(kind.get_all_field_indices(step)) != 1:
            return None
        kind = kind.field(step).type
    return kind


def walk(value: object, path: Sequence[str]) -> object:
    """Return what lies at a path inside of a value; None where an object is missing on the way.

    Raises:
        TypeError: a value on the way is no object.
    """
    for step in path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError
        value = value.get(step)
    return value

"""Fields inside of objects: a name such as "customer.address.country" that no field has is the path to one.

A field whose own name has points in it comes first, wherever there is one. An object that is missing on the way makes
the field missing; a value that is none makes the event a dead letter.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]


@cache
def path_of(name: str) -> Path:
    """Return the names of the objects on the way to a field, and its own; a single one of a field that is in none."""
    return tuple(name.split("."))


def containers(names: Iterable[str]) -> list[str]:
    """Return the outermost objects that paths among the names lead into, each once, without fields of that name."""
    declared = set(names)
    outermost = dict.fromkeys(path_of(name)[0] for name in names if len(path_of(name)) > 1)
    return [name for name in outermost if name not in declared]


def prefixes(names: Iterable[str]) -> list[Path]:
    """Return all paths to objects and fields inside of objects, each once."""
    paths = [path_of(name) for name in names]
    return list(dict.fromkeys(path[: length + 1] for path in paths if len(path) > 1 for length in range(len(path))))


def reachable(names: Sequence[str], columns: pa.Schema) -> list[str]:
    """Return the columns of a table, and those names that are paths to fields of its structs."""
    return [*columns.names, *(name for name in names if name not in columns.names and _is_inside(name, columns))]


def read_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column, or the field of a struct to which its name is the path; None where there is neither."""
    if name in rows.schema.names:
        return rows.column(name)
    if not _is_inside(name, rows.schema):
        return None
    outermost, *inside = path_of(name)
    found = rows.column(outermost)
    for step in inside:
        found = pc.struct_field(found, step)
    return found


def _is_inside(name: str, columns: pa.Schema) -> bool:
    """Return whether a name leads through structs to a field; none of them has a name twice."""
    outermost, *inside = path_of(name)
    if columns.names.count(outermost) != 1:
        return False
    kind = columns.field(outermost).type
    for step in inside:
        if not pa.types.is_struct(kind) or len(kind.get_all_field_indices(step)) != 1:
            return False
        kind = kind.field(step).type
    return True


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

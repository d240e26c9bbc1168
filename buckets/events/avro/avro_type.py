"""An Avro schema as a graph of types, read from its JSON: names are resolved, and all that decoding needs is there.

Source: the specification of Avro 1.12, https://avro.apache.org/docs/1.12.0/specification/
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.events.text_lines import BYTE_ORDER_MARK

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
}
"""By logical type, the types that may carry it; on any other it means nothing, as the specification has it."""
_BYTES_OF_UUID = 16
_MOST_BYTES = 2**31 - 1


class AvroSchemaError(ValueError):
    """A text is no Avro schema; says why."""


@dataclass(frozen=True)
class RecordField:
    """A field of a record; `aliases` are the names that it had before."""

    name: str
    kind: "AvroType"
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class AvroType:
    """A type. Types may contain themselves, so a record gets its fields after it is known by name.

    Attributes:
        kind: a primitive's name, or record, enum, fixed, array, map, union.
        logical: its logical type; empty for none, or one that does not fit.
        size: how many bytes a fixed has.
        precision: how many digits a decimal has.
        scale: how many of them stand after the point.
        symbols: of an enum.
        fields: of a record.
        branches: of a union; the one type of items or values of an array or a map.
    """

    kind: str
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[RecordField, ...] = ()
    branches: tuple["AvroType", ...] = ()


NO_RECORD = AvroType("no record")
"""What stands for a type that is no record, where a path to a field leads into one."""


@dataclass(frozen=True)
class _Names:
    """The types that have a name, and the namespace in which names are read."""

    known: dict[str, AvroType]
    namespace: str = ""

    def full(self, name: str) -> str:
        return name if "." in name or not self.namespace else f"{self.namespace}.{name}"

    def inside(self, name: str) -> "_Names":
        """Return the same for what stands in a type of a full name."""
        return _Names(self.known, name.rpartition(".")[0])


def read_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Read a schema.

    Args:
        text: its JSON.
        references: schemas whose types it names, each after those that it names itself.

    Raises:
        AvroSchemaError: one of them is no Avro schema.
    """
    names = _Names({})
    try:
        for reference in references:
            _read(json.loads(reference), names)
        return _read(json.loads(text.removeprefix(BYTE_ORDER_MARK)), names)
    except json.JSONDecodeError as error:
        message = f"is no JSON ({error.msg} at character {error.pos + 1})"
        raise AvroSchemaError(message) from None
    except AvroSchemaError:
        raise
    except ValueError as error:
        message = f"is no JSON ({error})"  # A number has thousands of digits.
        raise AvroSchemaError(message) from None
    except RecursionError:
        message = "is nested too deep"
        raise AvroSchemaError(message) from None


def read_fields(text: str, references: Sequence[str] = ()) -> list[str]:
    """Return the names that fields of a record have or had; of a union of records those of all of them.

    Raises:
        AvroSchemaError: it is no Avro schema.
    """
    root = read_schema(text, references)
    records = root.branches if root.kind == "union" else (root,)
    fields = [field for record in records for field in record.fields]
    return list(dict.fromkeys(name for field in fields for name in (field.name, *field.aliases)))


def _read(written: Any, names: _Names) -> AvroType:
    """Read a type in any of its forms: a name, a union, an object."""
    if isinstance(written, str):
        return _named(written, names)
    if isinstance(written, list):
        return AvroType("union", branches=tuple(_read(branch, names) for branch in written))
    if not isinstance(written, dict) or "type" not in written:
        message = f"{_shown(written)} is no type"
        raise AvroSchemaError(message)
    kind = written["type"]
    if kind in _NAMED:
        return _define(kind, written, names)
    if kind == "array":
        return AvroType("array", branches=(_read(_part(written, "items"), names),))
    if kind == "map":
        return AvroType("map", branches=(_read(_part(written, "values"), names),))
    if kind in PRIMITIVES:
        return _with_logical(AvroType(kind), written)
    return _read(kind, names)


def _named(name: str, names: _Names) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name)
    known = names.known.get(names.full(name)) or names.known.get(name)
    if known is None:
        message = f"{_shown(name)} is no type that is known there"
        raise AvroSchemaError(message)
    return known


def _define(kind: str, written: Mapping[str, Any], names: _Names) -> AvroType:
    """Read a type that has a name, and make it known under it, also to what stands in it."""
    name, namespace = _part(written, "name"), written.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        message = f"name {_shown(name)} is no text"
        raise AvroSchemaError(message)
    full = name if "." in name else f"{namespace}.{name}" if namespace else names.full(name)
    if namespace == "" and "." not in name:
        full = name
    made = AvroType("record" if kind == "error" else kind)
    names.known[full] = made
    if kind == "enum":
        made.symbols = tuple(map(str, _list(written, "symbols")))
    elif kind == "fixed":
        made.size = _count(written, "size")
        _with_logical(made, written)
    else:
        inside = names.inside(full)
        made.fields = tuple(_field(each, inside) for each in _list(written, "fields"))
        twice = [field for field, times in Counter(field.name for field in made.fields).items() if times > 1]
        if twice:
            message = f"record {_shown(name)} has field {_shown(twice[0])} twice"
            raise AvroSchemaError(message)
    return made


def _field(written: Any, names: _Names) -> RecordField:
    if not isinstance(written, dict) or not isinstance(written.get("name"), str):
        message = f"{_shown(written)} is no field of a record"
        raise AvroSchemaError(message)
    aliases = written.get("aliases", [])
    return RecordField(
        written["name"],
        _read(_part(written, "type"), names),
        tuple(map(str, aliases)) if isinstance(aliases, list) else (),
    )


def _with_logical(made: AvroType, written: Mapping[str, Any]) -> AvroType:
    """Give a type the logical type that is written beside it, if that fits."""
    logical = written.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "uuid" and made.kind == "fixed" and made.size != _BYTES_OF_UUID:
        return made
    if logical == "decimal":
        precision, scale = written.get("precision"), written.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
            return made
        made.precision, made.scale = precision, scale
    made.logical = logical
    return made


def _part(written: Mapping[str, Any], name: str) -> Any:
    if name not in written:
        message = f"{_shown(written)} has no {name!r}"
        raise AvroSchemaError(message)
    return written[name]


def _list(written: Mapping[str, Any], name: str) -> list[Any]:
    part = _part(written, name)
    if not isinstance(part, list):
        message = f"{name} of {_shown(written.get('name'))} is no list"
        raise AvroSchemaError(message)
    return part


def _count(written: Mapping[str, Any], name: str) -> int:
    part = _part(written, name)
    if not isinstance(part, int) or isinstance(part, bool) or not 0 <= part <= _MOST_BYTES:
        message = f"{name} of {_shown(written.get('name'))} is no number of bytes"
        raise AvroSchemaError(message)
    return part


def _shown(written: Any) -> str:
    text = json.dumps(written, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"

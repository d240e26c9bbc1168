"""An Avro schema as types with resolved names, and the schema by which fastavro reads messages.

fastavro gets no logical types, so numbers and decimals arrive as they were written, and `avro_events` interprets them.
The schema that it gets turns some faults that it would silently ignore into errors:

    union ["long", "string"]      [{0: "long"}, {1: "string"}]   records of one field, whose bytes are the same: they
                                                                 say which branch a message has
    enum                          "int"                          it counts a negative symbol from the end
    array of "null"               array of "no bytes"            a few bytes may promise any number of such items
    100 records in one another    "deeper"                       it goes as deep as a message says, and crashes

One fault remains: fastavro counts a negative branch of a union from the end.
"""

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import fastavro
from fastavro import _read_py as in_python

from buckets.errors import first_line
from buckets.events.csv_events import BYTE_ORDER_MARK
from buckets.events.decoded import SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEEPEST = 100  # The deepest nesting of records that is read, as in Protobuf
_UNNAMED = (*PRIMITIVES, "array", "map")
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
"""By logical type, the types that may carry it; on any other it is ignored, as the specification says."""
_BYTES_OF_UUID = 16
_MOST_BYTES = 2**31 - 1
_NO_BYTES, _DEEPER = "no bytes", "deeper"
_FAULTS = {
    _NO_BYTES: "an array has items that take no bytes",
    _DEEPER: f"is nested deeper than {DEEPEST} levels",
}
"""By the name of a type that does not exist, the fault of a message with a value of it."""
_GOES_ON = bytes(byte & 128 for byte in range(256))
_WIDE = b"\x80" * 9
"""By `_GOES_ON`, the beginning of each number over 64 bits, and of texts in non-Latin letters."""


@dataclass(frozen=True)
class RecordField:
    """A field of a record; `aliases` are the names that it had before."""

    name: str
    kind: "AvroType"
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class AvroType:
    """A type. Types may contain themselves, so a record is registered by name before it gets its fields."""

    kind: str  # a primitive's name, or record, enum, fixed, array, map, union
    logical: str = ""  # its logical type; empty for none, or one that does not fit
    size: int = 0  # how many bytes a fixed has
    precision: int = 0  # how many digits a decimal has
    scale: int = 0  # how many of them stand after the point
    symbols: tuple[str, ...] = ()  # of an enum
    fields: tuple[RecordField, ...] = ()  # of a record
    branches: tuple["AvroType", ...] = ()  # of a union; the one type of items or values of an array or a map

    def field(self, name: str) -> RecordField | None:
        """Return the field of a record that has, or once had, this name."""
        own = (field for field in self.fields if field.name == name)
        return next(own, None) or next((field for field in self.fields if name in field.aliases), None)

    @property
    def records(self) -> tuple["AvroType", ...]:
        """The records that messages of this type are: the type itself, or those of a union."""
        return self.branches if self.kind == "union" else (self,)

    @property
    def are_told_apart(self) -> bool:
        """Whether union branches are read as records naming the branch: if there are several besides null."""
        return sum(branch.kind != "null" for branch in self.branches) > 1


def read_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Read a schema in JSON, after the schemas whose types it names; SchemaError if one of them is invalid."""
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(json.loads(reference, object_hook=_without_meaning), named)
        written = json.loads(text.removeprefix(BYTE_ORDER_MARK), object_hook=_without_meaning)
        return _type(fastavro.parse_schema(written, named), named, {})
    except json.JSONDecodeError as error:
        message = f"is not JSON ({error.msg} at character {error.pos + 1})"
        raise SchemaError(message) from None
    except RecursionError:
        message = "is nested too deep"
        raise SchemaError(message) from None
    except SchemaError:
        raise
    except Exception as error:  # An invalid schema may raise any kind of error.
        message = f"is not a schema of Avro ({first_line(error)})"
        raise SchemaError(message) from None


def _without_meaning(written: dict[str, Any]) -> Any:
    """Drop defaults and logical types, which affect no bytes, and resolve `{"type": TYPE}`."""
    kind = written.get("type")
    if kind in ("record", "error") and not isinstance(written.get("fields"), list):
        message = "is not a schema of Avro (a record has no list of fields)"
        raise SchemaError(message)
    if kind is not None and "name" not in written and not (isinstance(kind, str) and kind in _UNNAMED):
        return kind
    return {"logical" if name == "logicalType" else name: part for name, part in written.items() if name != "default"}


def _type(written: Any, named: dict[str, Any], known: dict[str, AvroType]) -> AvroType:
    if isinstance(written, list):
        return AvroType("union", branches=tuple(_type(branch, named, known) for branch in written))
    if isinstance(written, str):
        return AvroType(written) if written in PRIMITIVES else known.get(written) or _type(named[written], named, known)
    kind = "record" if written["type"] == "error" else written["type"]
    made = AvroType(kind)
    if "name" in written:
        known[written["name"]] = made
    match kind:
        case "array" | "map":
            made.branches = (_type(written["items" if kind == "array" else "values"], named, known),)
        case "enum":
            made.symbols = tuple(written["symbols"])
        case "fixed":
            made.size = written["size"]
            if type(made.size) is not int or not 0 <= made.size <= _MOST_BYTES:
                message = f"is not a schema of Avro ({written['name']} has no number of bytes)"
                raise SchemaError(message)
        case "record":
            made.fields = tuple(
                RecordField(field["name"], _type(field["type"], named, known), tuple(field.get("aliases", ())))
                for field in written["fields"]
            )
            twice = [field for field, times in Counter(field.name for field in made.fields).items() if times > 1]
            if twice:
                message = f"is not a schema of Avro (record {written['name']} has field {twice[0]} twice)"
                raise SchemaError(message)
    _set_logical(made, written)
    return made


def _set_logical(made: AvroType, written: dict[str, Any]) -> None:
    """Give a type its logical type, if that fits."""
    logical = written.get("logical")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return
    if logical == "uuid" and made.kind == "fixed" and made.size != _BYTES_OF_UUID:
        return
    if logical == "decimal":
        precision, scale = written.get("precision"), written.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
            return
        made.precision, made.scale = precision, scale
    made.logical = logical


class BrokenMessage(ValueError):
    """A message does not fit its schema: the reason, and the offset in bytes."""

    def __init__(self, reason: str, at: int) -> None:
        """Take the reason and the number of bytes read before the fault."""
        super().__init__(reason)
        self.at = at


def record_reader(root: AvroType) -> Callable[[bytes], dict[str, Any]]:
    """Return a decoder for messages of a record type; it raises `BrokenMessage` for a broken one."""
    # What fastavro knows a schema by that it has parsed: it is not parsed again for each message.
    schema = _readable(root, 0, {}) | {"__fastavro_parsed": True, "__named_schemas": {}}

    def read(content: bytes) -> dict[str, Any]:
        source = io.BytesIO(content)
        try:
            record: Any = fastavro.schemaless_reader(source, schema, None)
            may_be_wide = content.translate(_GOES_ON).find(_WIDE)
            if may_be_wide >= 0 and _is_wide(schema, content, record):
                message = "a number has more than 64 bits"
                raise BrokenMessage(message, may_be_wide)
        except BrokenMessage:
            raise
        except Exception as error:  # Invalid bytes may raise any kind of error.
            raise BrokenMessage(_reason(error), source.tell()) from None
        if source.tell() != len(content):
            message = "has more bytes than its schema says"
            raise BrokenMessage(message, source.tell())
        return cast("dict[str, Any]", record)

    return read


def _is_wide(schema: Any, content: bytes, record: dict[str, Any]) -> bool:
    """Return whether a message has an integer over 64 bits, which the compiled reader silently truncates."""
    with contextlib.suppress(Exception):  # What is not written as it was read may have its items in several blocks.
        again = io.BytesIO()
        fastavro.schemaless_writer(again, schema, record)
        if again.getvalue() == content:
            return False
    return repr(record) != repr(in_python.schemaless_reader(io.BytesIO(content), schema, None))


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a text is not valid UTF-8"
    if isinstance(error, KeyError):
        return _FAULTS.get(error.args[0], "is not a message of its schema")
    if isinstance(error, IndexError) and "list" in str(error):
        return "a union has no such branch"
    return "ends in the middle of a value"


def _readable(kind: AvroType, level: int, made: dict[tuple[int, int], Any]) -> Any:
    """Return the schema by which fastavro reads a type at a depth of records; `made` caches those already built."""
    if (id(kind), level) in made:
        return made[id(kind), level]
    match kind.kind:
        case "record" if level > DEEPEST:
            return _DEEPER
        case "record":
            record = made[id(kind), level] = {"type": "record", "name": "record"}
            record["fields"] = [
                {"name": field.name, "type": _readable(field.kind, level + 1, made)} for field in kind.fields
            ]
            return record
        case "union":
            branches = [_readable(branch, level, made) for branch in kind.branches]
            if kind.are_told_apart:
                branches = [
                    {"type": "record", "name": "branch", "fields": [{"name": number, "type": branch}]}
                    for number, branch in enumerate(branches)
                ]
            return branches
        case "array":
            items = kind.branches[0]
            is_nothing = _takes_no_bytes(items, set())
            return {"type": "array", "items": _NO_BYTES if is_nothing else _readable(items, level, made)}
        case "map":
            return {"type": "map", "values": _readable(kind.branches[0], level, made)}
        case "fixed":
            return {"type": "fixed", "name": "fixed", "size": kind.size}
        case "enum":
            return "int"
    return kind.kind


def _takes_no_bytes(kind: AvroType, outer: set[int]) -> bool:
    """Return whether values of a type may take no bytes; `outer` are the records around it."""
    if kind.kind == "record" and id(kind) not in outer:
        return all(_takes_no_bytes(field.kind, outer | {id(kind)}) for field in kind.fields)
    return kind.kind in ("null", "record") or (kind.kind == "fixed" and kind.size == 0)


def plain_value(kind: AvroType, value: Any) -> Any:
    """Return a decoded value without the records that name the branch of a union."""
    match kind.kind:
        case "union" if kind.are_told_apart:
            ((number, inside),) = value.items()
            return plain_value(kind.branches[number], inside)
        case "union":
            branch = next((branch for branch in kind.branches if branch.kind != "null"), kind)
            return None if value is None else plain_value(branch, value)
        case "record":
            return {field.name: plain_value(field.kind, value[field.name]) for field in kind.fields}
        case "array":
            return [plain_value(kind.branches[0], each) for each in value]
        case "map":
            return {name: plain_value(kind.branches[0], each) for name, each in value.items()}
    return value

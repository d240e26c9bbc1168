"""Reads the messages of an output, as described by its schema in `schemas/*.json`, into the types of a table.

The schema alone names, describes and limits fields. A message that does not fit is refused with the field and the
reason. Unknown fields come from a later release, and are kept unchanged.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import pyarrow as pa

from buckets.json_text import write_json
from buckets.outputs.output import VALUE, Row
from buckets.resources import resource

Kind = Literal["text", "texts", "object", "objects", "flag", "int32", "int64", "moment", "decimal"]
MOMENT = pa.timestamp("us", "UTC")
COLUMN_TYPES: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "object": pa.string(),
    "objects": pa.string(),
    "flag": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "moment": MOMENT,
    "decimal": VALUE,
}
OTHER_FIELDS = "other_fields"
_KINDS: dict[tuple[str, str | None], Kind] = {
    ("string", None): "text",
    ("string", "decimal"): "decimal",
    ("array", None): "texts",
    ("array", "objects"): "objects",
    ("object", None): "object",
    ("boolean", None): "flag",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("integer", "epoch-ms"): "moment",
}
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which every reader of tables can show."""
_SHOWN = 80


@dataclass(frozen=True)
class Field:
    """One field of a message."""

    name: str  # in the message, and of its column
    kind: Kind  # what its values are
    nullable: bool  # whether it may be null
    description: str  # what it says, with its unit
    choices: tuple[Any, ...] = ()  # the values that are allowed; empty if all are
    minimum: int | None = None  # the least integer
    shortest: int = 0  # the fewest characters of a text
    longest: int | None = None  # the most characters of a text
    pattern: re.Pattern[str] | None = None  # what a text looks like
    # whether every message has it; a field that was added to the schema later is null in older messages
    required: bool = True

    def read(self, value: Any) -> Any:
        """Convert a value to its column's type: timestamps in us, objects as JSON; ValueError if it does not fit."""
        if value is None:
            if self.nullable:
                return None
            message = "is null"
            raise ValueError(message)
        read = self._as_column(value)
        if self.choices and value not in self.choices:
            message = f"{_shown(value)} is none of {', '.join(str(each) for each in self.choices if each is not None)}"
            raise ValueError(message)
        return read

    def _as_column(self, value: Any) -> Any:
        match self.kind:
            case "text" if isinstance(value, str):
                if not self.shortest <= len(value) <= (len(value) if self.longest is None else self.longest):
                    _refuse(value, f"a text of {self.shortest} to {self.longest or 'any number of'} characters")
                if self.pattern is not None and self.pattern.search(value) is None:
                    _refuse(value, "of the form that the schema gives")
                return _whole_characters(value)
            case "int64" | "int32":
                bits = 64 if self.kind == "int64" else 32
                if type(value) is not int or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                    _refuse(value, f"an integer of {bits} bits")
                if self.minimum is not None and value < self.minimum:
                    _refuse(value, f"an integer of at least {self.minimum}")
                return value
            case "moment" if type(value) is int and _FIRST_MS <= value <= _LAST_MS:
                return value * 1000
            case "decimal" if isinstance(value, str) and self.pattern and self.pattern.fullmatch(value):
                return Decimal(value)
            case "flag" if isinstance(value, bool):
                return value
            case "object" if isinstance(value, dict):
                return _whole_characters(write_json(value))
            case "objects" if isinstance(value, list) and all(isinstance(item, dict) for item in value):
                return _whole_characters(write_json(value))
            case "texts" if isinstance(value, list) and all(isinstance(item, str) for item in value):
                return [_whole_characters(item) for item in value]
        _refuse(value, _WANTED[self.kind])


_WANTED: dict[Kind, str] = {
    "text": "a text",
    "moment": "a time in ms since 1970, in the years 1 to 9999",
    "decimal": "a decimal of up to 20 digits before and 24 after the point",
    "flag": "true or false",
    "object": "an object",
    "objects": "a list of objects",
    "texts": "a list of texts",
}


def _refuse(value: Any, wanted: str) -> NoReturn:
    message = f"{_shown(value)} is not {wanted}"
    raise ValueError(message)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _whole_characters(text: str) -> str:
    """Return the text; refuse unpaired surrogates, which JSON can write and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "holds half of a character, a lone surrogate"
        raise ValueError(message) from None
    return text


def _no_number(text: str) -> Any:
    message = f"{text} is not a number in JSON"
    raise ValueError(message)


@dataclass(frozen=True)
class Contract:
    """The schema of an output's messages."""

    title: str  # what a message is, in words
    fields: tuple[Field, ...]  # its fields, in the order of the schema

    def read(self, value: bytes | None) -> Row:
        """Return a message as a row: all fields and `other_fields`; ValueError says what does not fit."""
        return self.row_of(_object_of(value))

    def row_of(self, values: dict[str, Any]) -> Row:
        """Return a decoded JSON message as a row; arguments and errors as for `read`."""
        row: Row = {}
        for field in self.fields:
            if field.name not in values and not field.required:
                row[field.name] = None
                continue
            if field.name not in values:
                message = f"{field.name}: is missing"
                raise ValueError(message)
            try:
                row[field.name] = field.read(values.pop(field.name))
            except ValueError as error:
                message = f"{field.name}: {error}"
                raise ValueError(message) from None
        row[OTHER_FIELDS] = _whole_characters(write_json(values)) if values else None
        return row


def _object_of(value: bytes | None) -> dict[str, Any]:
    if value is None:
        message = "has no value"
        raise ValueError(message)
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        message = f"is not valid UTF-8 at byte {error.start}"
        raise ValueError(message) from None
    try:
        values = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    if not isinstance(values, dict):
        message = "is not a JSON object"
        raise ValueError(message)
    return values


def schema_path(name: str) -> Path:
    """Return the path of a published schema by name and version, such as `alert-v1`."""
    return resource(f"schemas/{name}.json")


@cache
def load_contract(name: str) -> Contract:
    """Read a published schema by name and version."""
    schema = json.loads(schema_path(name).read_text(encoding="utf-8"))
    fields = tuple(_field(name, written, name in schema["required"]) for name, written in schema["properties"].items())
    return Contract(schema["title"], fields)


def _field(name: str, written: dict[str, Any], required: bool) -> Field:
    types = written["type"] if isinstance(written["type"], list) else [written["type"]]
    (kind,) = [kind for kind in types if kind != "null"]
    is_of_objects = written.get("items", {}).get("type") == "object"
    return Field(
        name=name,
        kind=_KINDS[kind, "objects" if is_of_objects else written.get("format")],
        nullable="null" in types,
        description=written["description"],
        choices=tuple(written["enum"]) if "enum" in written else (written["const"],) if "const" in written else (),
        minimum=written.get("minimum"),
        shortest=written.get("minLength", 0),
        longest=written.get("maxLength"),
        pattern=re.compile(written["pattern"], re.ASCII) if "pattern" in written else None,
        required=required,
    )

"""Results in Avro or Protobuf, by the schemas `schemas/avro/*.avsc` and `schemas/protobuf/*.proto`.

They say what the schemas of JSON say, field by field. Times are timestamps, decimals texts as in JSON, arrays of events
JSON as text, and what JSON leaves out is null or not there. In Protobuf a number belongs to a field for good, so those
files only grow, and the newest one reads what any has written.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from google.protobuf.descriptor import Descriptor

from buckets.events.avro.avro_type import AvroType, read_schema
from buckets.events.avro.reader import avro_value
from buckets.events.avro.writer import Write, avro_writer
from buckets.events.protobuf import proto_schema
from buckets.events.protobuf.plain_values import protobuf_bytes, protobuf_value
from buckets.events.protobuf.proto_schema import ProtobufText, message_named
from buckets.expressions.expression import is_array
from buckets.outputs.columns import PUBLISHED
from buckets.outputs.contract import load_contract
from buckets.resources import resource

BinaryFormat = Literal["avro", "protobuf"]
_ENDS = {"avro": "avsc", "protobuf": "proto"}
_FIRST_MESSAGE = b"\0"
"""The indexes of the first message of a file of Protobuf, for short."""


def schema_path(output: str, written_in: BinaryFormat) -> Path:
    """Return where the schema of an output lies."""
    return resource(f"schemas/{written_in}/{PUBLISHED[output].contract}.{_ENDS[written_in]}")


@cache
def schema_text(output: str, written_in: BinaryFormat) -> str:
    """Return the schema of an output, as it is registered."""
    return schema_path(output, written_in).read_text(encoding="utf-8")


def binary_message(output: str, written_in: BinaryFormat, shown: dict[str, Any]) -> bytes:
    """Return the value of a message behind the number of its schema, from what JSON shows of it."""
    if written_in == "avro":
        content = bytearray()
        _writer(output)(shown, content)
        return bytes(content)
    return _FIRST_MESSAGE + protobuf_bytes(_protobuf(output), shown)


def shown_avro(output: str, schema: str, content: bytes) -> dict[str, Any]:
    """Return what JSON shows of a message in Avro.

    Args:
        output: its name.
        schema: that the message was written with.
        content: the message behind the number of its schema.

    Raises:
        ValueError: it is broken, or the schema is none.
    """
    value = avro_value(_avro(schema), content)
    if not isinstance(value, dict):
        message = "is no record"
        raise ValueError(message)
    return _as_json(output, value)


def shown_protobuf(output: str, content: bytes) -> dict[str, Any]:
    """Return what JSON shows of a message in Protobuf; `content` lies behind the number of its schema.

    Raises:
        ValueError: it is broken.
    """
    if not content.startswith(_FIRST_MESSAGE):
        message = "is not the first message of its schema"
        raise ValueError(message)
    return _as_json(output, protobuf_value(_protobuf(output), content[len(_FIRST_MESSAGE) :]))


def _as_json(output: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return fields without those that JSON leaves out; a list of objects that is empty in Protobuf is null in JSON."""
    shown = {}
    for field in load_contract(PUBLISHED[output].contract).fields:
        given = value.get(field.name)
        if field.kind == "objects" and given is not None:
            given = [_term(each) for each in given] or None
        if field.kind == "object" and given is not None:
            # An array is JSON as text there, in a map of single values.
            given = {name: _array(each) if is_array(name) else each for name, each in given.items()}
        if given is not None or field.nullable:
            shown[field.name] = given
    return shown


def _array(written: Any) -> Any:
    return json.loads(written) if isinstance(written, str) else written


def _term(written: dict[str, Any]) -> dict[str, Any]:
    """Return a feature as JSON has it: its value may be null, all else is left out then; a filter may be an object."""
    term = {name: each for name, each in written.items() if name == "value" or each is not None}
    try:
        where = json.loads(term.get("where", "null"))
    except ValueError:
        return term
    return term | {"where": where} if isinstance(where, dict) else term


@cache
def _avro(text: str) -> AvroType:
    return read_schema(text)


@cache
def _writer(output: str) -> Write:
    return avro_writer(_avro(schema_text(output, "avro")))


@cache
def _protobuf(output: str) -> Descriptor:
    written = ProtobufText(schema_text(output, "protobuf"))
    return message_named(proto_schema.read_schema(written, maps_as_lists=True), None)

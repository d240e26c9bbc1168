"""Results in Avro or Protobuf, by the schemas `schemas/avro/*.avsc` and `schemas/protobuf/*.proto`.

They say what the schemas of JSON say, field by field. Times are timestamps, decimals texts as in JSON, arrays of
events
JSON as text, and what JSON leaves out is null or not there. In Protobuf a number belongs to a field for good, so
those
files only grow, and the newest one reads what any has written.

What made an alert, in words.
"""

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from buckets.expressions.expression import is_array
from buckets.numbers.fixed_point import readable
from buckets.outputs.columns import PUBLISHED
from buckets.outputs.contract import load_contract
from buckets.resources import resource

BinaryFormat = Literal["avro", "protobuf"]
_ENDS = {"avro": "avsc", "protobuf": "proto"}
_FIRST_MESSAGE = b"\0"  # The indexes of the first message of a file of Protobuf, for short


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
        import fastavro

        content = io.BytesIO()
        fastavro.schemaless_writer(content, _parsed(output), _with_texts(output, shown))
        return content.getvalue()
    from buckets.events.protobuf.plain_values import protobuf_bytes

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
    return _as_json(output, _reader(schema)(content))


def shown_protobuf(output: str, content: bytes) -> dict[str, Any]:
    """Return what JSON shows of a message in Protobuf; `content` lies behind the number of its schema.

    Raises:
        ValueError: it is broken.
    """
    from buckets.events.protobuf.plain_values import protobuf_value

    if not content.startswith(_FIRST_MESSAGE):
        message = "is not the first message of its schema"
        raise ValueError(message)
    return _as_json(output, protobuf_value(_protobuf(output), content[len(_FIRST_MESSAGE) :]))


def _with_texts(output: str, shown: dict[str, Any]) -> dict[str, Any]:
    """Return fields with JSON as text in the place of arrays of events, and of filters in features."""
    texts = dict(shown)
    for field in load_contract(PUBLISHED[output].contract).fields:
        given = shown.get(field.name)
        if field.kind == "object" and given is not None:
            texts[field.name] = {name: _as_text(each, list) for name, each in given.items()}
        if field.kind == "objects" and given is not None:
            texts[field.name] = [{name: _as_text(each, dict) for name, each in term.items()} for term in given]
    return texts


def _as_text(value: Any, kind: type) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, kind) else value


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
def _parsed(output: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema_text(output, "avro")))


@cache
def _reader(schema: str) -> Callable[[bytes], dict[str, Any]]:
    from buckets.events.avro.avro_events import AvroText, record_type
    from buckets.events.avro.avro_type import plain_value, record_reader

    kind = record_type(AvroText(schema))
    read = record_reader(kind)
    return lambda content: plain_value(kind, read(content))


@cache
def _protobuf(output: str) -> Any:
    from buckets.events.protobuf.proto_schema import ProtobufText, message_named, read_schema

    return message_named(read_schema(ProtobufText(schema_text(output, "protobuf")), maps_as_lists=True), None)


def term_value(term: dict[str, Any]) -> str:
    """Return the value of a feature, as people read it."""
    value = term["value"]
    if value is None:
        return "no value"
    return ("yes" if value else "no") if isinstance(value, bool) else readable(value)


def crossed(alert: dict[str, Any]) -> str:
    """Say in short what made an alert: its value and limit, or its condition with the numbers in it."""
    if alert["value"] is None:
        return str(alert["condition"])
    return f"{readable(alert['value'])} {alert['operator']} {readable(alert['limit'])}"

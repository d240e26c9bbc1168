"""Results as messages, in JSON, Avro or Protobuf, and as files of JSON lines.

A message has a key by which it stays in order and an id by which repeats are known. The values are described in
`schemas`, one file an output. Times are epoch ms, decimals are strings.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from buckets.events.arrivals import INGESTED
from buckets.events.decoded import AVRO, PROTOBUF, WriterSchema
from buckets.events.schema import EventSchema
from buckets.expressions.expression import is_array
from buckets.files import partial_of
from buckets.json_text import write_json
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, format_scaled, readable
from buckets.outputs import columns
from buckets.outputs.columns import EVALUATIONS, OBJECTS, PUBLISHED
from buckets.outputs.contract import load_contract
from buckets.printable import one_line
from buckets.resources import resource
from buckets.rules.rule import value_scale
from buckets.rules.rule_set import RuleSet

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
    from buckets.events.protobuf.wanted import protobuf_bytes

    return _FIRST_MESSAGE + protobuf_bytes(_protobuf(output), shown)


def shown_avro(output: str, schema: str, content: bytes) -> dict[str, Any]:
    """Return what JSON shows of a message in Avro; ValueError if it is broken, or the schema is none."""
    return _as_json(output, _reader(schema)(content))


def shown_protobuf(output: str, content: bytes) -> dict[str, Any]:
    """Return what JSON shows of a message in Protobuf, behind the number of its schema; broken is a ValueError."""
    from buckets.events.protobuf.wanted import protobuf_value

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
    return write_json(value) if isinstance(value, kind) else value


def _as_json(output: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return fields without those that JSON leaves out; a list of objects that is empty in Protobuf is null in JSON."""
    shown = {}
    for field in load_contract(PUBLISHED[output].contract).fields:
        given = value.get(field.name)
        if field.kind == "objects" and given is not None:
            given = [_term(each) for each in given] or None
        if field.kind == "object" and given is not None:
            # An array is JSON as text there, in a map of single values.
            is_text = {name: is_array(name) and isinstance(each, str) for name, each in given.items()}
            given = {name: json.loads(each) if is_text[name] else each for name, each in given.items()}
        if given is not None or field.nullable:
            shown[field.name] = given
    return shown


def _term(written: dict[str, Any]) -> dict[str, Any]:
    """Return a feature as JSON has it: its value may be null, all else is left out then; a filter may be an object."""
    term = {name: each for name, each in written.items() if name == "value" or each is not None}
    with contextlib.suppress(ValueError):
        where = json.loads(term.get("where", "null"))
        term |= {"where": where} if isinstance(where, dict) else {}
    return term


@cache
def _parsed(output: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema_text(output, "avro")))


@cache
def _reader(schema: str) -> Callable[[bytes], dict[str, Any]]:
    from buckets.events.avro.avro_events import record_type
    from buckets.events.avro.avro_type import plain_value, record_reader

    kind = record_type(WriterSchema(AVRO, schema))
    read = record_reader(kind)
    return lambda content: plain_value(kind, read(content))


@cache
def _protobuf(output: str) -> Any:
    from buckets.events.protobuf.proto_schema import message_named, read_schema

    return message_named(read_schema(WriterSchema(PROTOBUF, schema_text(output, "protobuf")), maps_as_lists=True), None)


def term_value(term: dict[str, Any]) -> str:
    """Return the value of a feature, as people read it."""
    value = term["value"]
    if value is None:
        return "no value"
    if term.get("type") == "text":
        return one_line(value)
    return ("yes" if value else "no") if isinstance(value, bool) else readable(value)


def crossed(alert: dict[str, Any]) -> str:
    """Say in short what made an alert: its value and limit, or its condition with the numbers in it."""
    if alert["value"] is None:
        return str(alert["condition"])
    return f"{readable(alert['value'])} {alert['operator']} {readable(alert['limit'])}"


_DROPPED = ("source", "source_order")
_EXACT = Context(prec=100)


class JsonLines:
    """Writes rows of outputs as text."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        self._rule_index = {rule.rule_id: index for index, rule in enumerate(rule_set.rules)}
        of_measures = (rule for rule in rule_set.rules if rule.measure is not None)
        self._scale = {rule.rule_id: value_scale(rule, schema) for rule in of_measures}
        self._largest_scale = schema.largest_scale
        self._group_index = {group.name: index for index, group in enumerate(rule_set.groups)}

    def lines(self, output: str, table: pa.Table) -> Iterator[str]:
        """Yield the rows of an output, in arrival order, rules of one event in the order of the rule file."""
        for row in self.ordered(table):
            yield write_json(self.shown(output, row))

    def ordered(self, table: pa.Table) -> list[dict[str, Any]]:
        """Return the rows as plain data, times in ms, in that order."""
        for name in [field.name for field in table.schema if pa.types.is_timestamp(field.type)]:
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
        return sorted(table.to_pylist(), key=self._order)

    def _order(self, row: dict[str, Any]) -> tuple[Any, ...]:
        rule = self._rule_index.get(row.get("rule_id", ""), 0)
        return row["source_order"], row["source"], row["position"], rule, self._group_index.get(row.get("group", ""), 0)

    def shown(self, output: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row as it is written: keys and events as objects, values with the digits of their rule."""
        shown = {name: value for name, value in row.items() if name not in _DROPPED}
        if output == EVALUATIONS:
            del shown["position"]
        for name in OBJECTS:
            if shown.get(name) is not None:
                shown[name] = json.loads(shown[name])
        scale = self._scale.get(row["rule_id"], 0) if "rule_id" in row else self._largest_scale
        for name, value in shown.items():
            if isinstance(value, Decimal):
                unscaled = int(value.scaleb(-int(value.as_tuple().exponent), _EXACT))
                scaled = unscaled // 10 ** (self._largest_scale + AVERAGE_EXTRA_DIGITS - scale)
                shown[name] = format_scaled(scaled, scale)
        return shown


ID = "id"


@dataclass(frozen=True)
class Message:
    """One message, not yet sent."""

    key: str  # messages of one key stay in order
    value: str  # JSON
    identity: str  # the same however often the batch is run


class Messages:
    """Writes rows of outputs as messages."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        self._lines = JsonLines(rule_set, schema)
        self._fields = {rule.rule_id: list(rule.group_by) for rule in rule_set.rules}

    def of(self, output: str, table: pa.Table, decided_ms: int) -> Iterator[Message]:
        """Yield the rows of an output as messages in JSON; arguments and order as `shown`."""
        for key, fields, identity in self.shown(output, table, decided_ms):
            yield Message(key, write_json(fields), identity)

    def shown(self, output: str, table: pa.Table, decided_ms: int) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yield messages of the rows of an output, in arrival order: key, fields as JSON has them, and identity.

        Alerts carry when the batch's results were known, in ms since the epoch.
        """
        for row in self._lines.ordered(table):
            version, shown = PUBLISHED[output].version, self._lines.shown(output, row)
            if version > 1 and shown["value"] is None and shown["count"] == 0:
                shown["count"] = None  # as the schema has it: of a NULL, no count
            shown = {"version": version, **shown, "source": row["source"], "position": row["position"]}
            if "alert_id" in shown:
                identity = shown["alert_id"]
                shown |= {
                    "group_by": self._fields[row["rule_id"]],
                    "ingested_at": shown.pop(INGESTED, None),
                    "decided_at": decided_ms,
                }
            else:
                identity = _identity(output, row)
                shown[ID] = identity
            yield row.get("key") or row["source"], shown, identity


def _identity(output: str, row: dict[str, Any]) -> str:
    """Return the identity of a row other than an alert: its output, position in the source, group or rule, and event.

    The event counts because several events may share a position, if a column gives the arrival order.
    """
    names = ("source", "position", "group", "rule_id", "key", "event_id", "event_time", "raw")
    parts = write_json([output, *(row.get(name) for name in names)])
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


OUTPUTS = (EVALUATIONS, *(output.name for output in columns.OUTPUTS if output.name != EVALUATIONS))


class JsonFiles:
    """Files that are written, and that replace earlier ones at the end; without an end they are removed.

    Attributes:
        lines: how many lines each output has.
    """

    def __init__(self, folder: Path, writer: JsonLines) -> None:
        self.lines = dict.fromkeys(OUTPUTS, 0)
        self._paths = {output: folder / f"{output}.jsonl" for output in OUTPUTS}
        self._writer = writer
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "JsonFiles":
        for output, path in self._paths.items():
            self._files[output] = self._open.enter_context(partial_of(path).open("wb"))
        return self

    def write(self, output: str, rows: pa.Table) -> None:
        """Write rows of an output, which come after those before; others than `OUTPUTS` are left out."""
        if output in self._files:
            for line in self._writer.lines(output, rows):
                self._files[output].write(f"{line}\n".encode())
                self.lines[output] += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Put them in place, or remove them."""
        self._open.close()
        for path in self._paths.values():
            if error is None:
                partial_of(path).replace(path)
            else:
                partial_of(path).unlink(missing_ok=True)

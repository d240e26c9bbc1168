"""Results as messages, in JSON, Avro or Protobuf, and as files of JSON lines.

A message has a key, which keeps it in order, and an id, which identifies repeats. `schemas` describes the values, one
file per output. Times are epoch ms, decimals are strings.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import repeat
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from buckets.events.arrivals import INGESTED, json_objects
from buckets.events.decoded import AVRO, PROTOBUF, WriterSchema
from buckets.events.schema import EventSchema
from buckets.expressions.expression import is_array
from buckets.files import partial_of
from buckets.json_text import write_json
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, readable
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


@cache
def schema_text(output: str, written_in: BinaryFormat) -> str:
    """Return the schema of an output in the form in which it is registered."""
    path = resource(f"schemas/{written_in}/{PUBLISHED[output].contract}.{_ENDS[written_in]}")
    return path.read_text(encoding="utf-8")


def binary_message(output: str, written_in: BinaryFormat, shown: dict[str, Any]) -> bytes:
    """Encode the value of a message, given as JSON data, without the prefix that holds its schema number."""
    if written_in == "avro":
        import fastavro

        content = io.BytesIO()
        fastavro.schemaless_writer(content, _parsed(output), _with_texts(output, shown))
        return content.getvalue()
    from buckets.events.protobuf.wanted import protobuf_bytes

    return _FIRST_MESSAGE + protobuf_bytes(_protobuf(output), shown)


def shown_avro(output: str, schema: str, content: bytes) -> dict[str, Any]:
    """Decode a message in Avro to JSON data; ValueError if it is broken, or the schema is invalid."""
    return _as_json(output, _reader(schema)(content))


def shown_protobuf(output: str, content: bytes) -> dict[str, Any]:
    """Decode a message in Protobuf, without its schema number, to JSON data; ValueError if broken."""
    from buckets.events.protobuf.wanted import protobuf_value

    if not content.startswith(_FIRST_MESSAGE):
        message = "is not the first message of its schema"
        raise ValueError(message)
    return _as_json(output, protobuf_value(_protobuf(output), content[len(_FIRST_MESSAGE) :]))


def _with_texts(output: str, shown: dict[str, Any]) -> dict[str, Any]:
    """Return fields with arrays of events, and filters in features, replaced by JSON as text."""
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
    """Return fields without those that JSON omits; an empty list of objects in Protobuf is null in JSON."""
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
    """Return a feature as in JSON: its value may be null, other empty fields are omitted; a filter may be an object."""
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
    """Return the value of a feature for people."""
    value = term["value"]
    if value is None:
        return "no value"
    if term.get("type") == "text":
        return one_line(value)
    return ("yes" if value else "no") if isinstance(value, bool) else readable(value)


def crossed(alert: dict[str, Any]) -> str:
    """Say briefly why an alert fired: its value and limit, or its condition with the numbers filled in."""
    if alert["value"] is None:
        return str(alert["condition"])
    return f"{readable(alert['value'])} {alert['operator']} {readable(alert['limit'])}"


_DROPPED = ("source", "source_order")
_FLAGS = {None: "null", False: "false", True: "true"}


class JsonLines:
    """Writes rows of outputs as text, column by column: a job's results wait for it."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        self._rule_index = {rule.rule_id: index for index, rule in enumerate(rule_set.rules)}
        of_measures = (rule for rule in rule_set.rules if rule.measure is not None)
        self._scale = {rule.rule_id: value_scale(rule, schema) for rule in of_measures}
        self._largest_scale = schema.largest_scale
        self._group_index = {group.name: index for index, group in enumerate(rule_set.groups)}

    def lines(self, output: str, table: pa.Table) -> Iterator[str]:
        """Yield the rows of an output in arrival order; rules at one event in the order of the rule file."""
        texts = self.texts(self.ordered(table))
        if output == EVALUATIONS:
            del texts["position"]
        yield from json_objects(texts)

    def ordered(self, table: pa.Table) -> pa.Table:
        """Return the rows in that order, with times in ms."""
        timed = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in table.columns]
        table = pa.table(timed, names=table.column_names)
        rules, groups = (
            [index.get(each, 0) for each in table[name].to_pylist()] if name in table.column_names else repeat(0)
            for name, index in (("rule_id", self._rule_index), ("group", self._group_index))
        )
        places = (table[name].to_pylist() for name in ("source_order", "source", "position"))
        keys = [*zip(*places, rules, groups, strict=False)]  # the number of rules and groups is not bounded
        order = sorted(range(len(keys)), key=keys.__getitem__)
        return table if order == [*range(len(keys))] else table.take(order)

    def texts(self, table: pa.Table) -> dict[str, list[str]]:
        """Return the fields of `ordered` rows as JSON: keys and events as objects, values with their rule's digits."""
        texts, scales = dict[str, list[str]](), self._scales(table)
        decimals: tuple[pa.ChunkedArray | None, list[str]] = None, []  # The last column, as bounds may equal it
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name in _DROPPED:
                continue
            kind = column.type
            if pa.types.is_decimal(kind):
                if not column.equals(decimals[0]):
                    decimals = column, [*map(self._digits, column.to_pylist(), scales)]
                texts[name] = decimals[1]
            elif pa.types.is_boolean(kind):
                texts[name] = [_FLAGS[value] for value in column.to_pylist()]
            else:
                write = encode_basestring if pa.types.is_string(kind) else write_json
                write = str if name in OBJECTS or pa.types.is_integer(kind) else write
                texts[name] = ["null" if value is None else write(value) for value in column.to_pylist()]
        return texts

    def _scales(self, table: pa.Table) -> Iterable[int]:
        if "rule_id" not in table.column_names:
            return repeat(self._largest_scale)
        return [self._scale.get(rule_id, 0) for rule_id in table["rule_id"].to_pylist()]

    def _digits(self, value: Decimal | None, scale: int) -> str:
        if value is None:
            return "null"
        padding = self._largest_scale + AVERAGE_EXTRA_DIGITS - scale  # Zeros, as the column has so many digits
        return f'"{format(value, "f")[: -(padding + (scale == 0)) or None]}"'


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
        """Yield the rows of an output as messages in JSON, in arrival order.

        Alerts carry the time when the batch's results were known, in ms since the epoch.
        """
        table, version = self._lines.ordered(table), PUBLISHED[output].version
        texts, sources = self._lines.texts(table), table["source"].to_pylist()
        if version > 1:  # as the schema has it: of a NULL, no count
            counted = zip(texts["value"], texts["count"], strict=True)
            texts["count"] = ["null" if (value, count) == ("null", "0") else count for value, count in counted]
        every, position = [str(version)] * len(table), texts["position"]
        if output == EVALUATIONS:  # It is written last
            del texts["position"]
        texts = {"version": every, **texts, "source": [*map(write_json, sources)], "position": position}
        if "alert_id" in texts:
            identities, rule_ids = table["alert_id"].to_pylist(), table["rule_id"].to_pylist()
            fields = {rule_id: write_json(self._fields[rule_id]) for rule_id in set(rule_ids)}
            texts |= {
                "group_by": [fields[rule_id] for rule_id in rule_ids],
                "ingested_at": texts.pop(INGESTED, ["null"] * len(table)),
                "decided_at": [str(decided_ms)] * len(table),
            }
        else:
            identities = _identities(output, table)
            texts[ID] = [*map(write_json, identities)]
        keys = table["key"].to_pylist() if "key" in table.column_names else [None] * len(table)
        for key, source, value, identity in zip(keys, sources, json_objects(texts), identities, strict=True):
            yield Message(key or source, value, identity)


_IDENTIFYING = ("source", "position", "group", "rule_id", "key", "event_id", "event_time", "raw")


def _identities(output: str, table: pa.Table) -> list[str]:
    """Return the ids of rows other than alerts: output, position in the source, group or rule, and event.

    The event is part of it because several events may share a position if a column gives the arrival order.
    """
    none, there = [None] * len(table), table.column_names
    columns = (table[name].to_pylist() if name in there else none for name in _IDENTIFYING)
    parts = (write_json([output, *row]).encode() for row in zip(*columns, strict=True))
    return [hashlib.blake2b(each, digest_size=16).hexdigest() for each in parts]


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
        """Append rows of an output; outputs that are not in `OUTPUTS` are ignored."""
        if output in self._files:
            for line in self._writer.lines(output, rows):
                self._files[output].write(f"{line}\n".encode())
                self.lines[output] += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Move the files into place, or remove them after an error."""
        self._open.close()
        for path in self._paths.values():
            if error is None:
                partial_of(path).replace(path)
            else:
                partial_of(path).unlink(missing_ok=True)

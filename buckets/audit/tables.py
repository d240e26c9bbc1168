"""The tables of the audit: columns with comments, checks of rows, and messages of topics as rows.

A message is decoded by the schema of its output. One that does not fit is kept undecoded, with the reason in `fault`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from buckets.checkpoint.writer_schemas import RegisteredSchemas
from buckets.events.decoded import AVRO, PREFIX_BYTES
from buckets.events.messages import SchemaOf
from buckets.outputs.columns import PUBLISHED, TOPICS, VERDICTS
from buckets.outputs.contract import COLUMN_TYPES, MOMENT, OTHER_FIELDS, Contract, Field, load_contract
from buckets.outputs.messages import BinaryFormat, shown_avro, shown_protobuf
from buckets.outputs.output import USUAL_SCALE, Check, Row, value_type


def field_checks(field: Field) -> Iterable[Check]:
    """Yield the constraints of a field's values: ids are not empty, numbers not too small, choices are allowed ones."""
    name, minimum, choices = field.name, field.minimum, field.choices

    def check(suffix: str, sql: str, holds: Callable[[Any], bool]) -> Check:
        sql = f"{name} IS NULL OR {sql}" if field.nullable else sql
        return Check(f"{name}_{suffix}", sql, lambda row: row[name] is None or holds(row[name]))

    if name.endswith("id") and field.shortest:
        yield check("is_not_empty", f"{name} <> ''", lambda value: value != "")
    if minimum is not None:
        yield check("is_large_enough", f"{name} >= {minimum}", lambda value: bool(value >= minimum))
    if field.kind == "text" and choices:
        listed = ", ".join(f"'{choice}'" for choice in choices if choice is not None)
        yield check("is_known", f"{name} IN ({listed})", lambda value: value in choices)


TRANSACTIONS = "transactions"
UNREADABLE = "unreadable"
DAY = "day"
TOPIC, PARTITION, OFFSET, PUBLISHED_AT = "topic", "partition", "offset", "published_at"
TOPIC_ID = "topic_id"
TIMESTAMP_TYPE = "timestamp_type"
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_UNIT_OF_MOMENTS = " In ms since 1970-01-01T00:00:00Z."


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: pa.DataType
    nullable: bool
    comment: str


@dataclass(frozen=True)
class Table:
    """A table of the audit."""

    name: str  # of its folder
    comment: str  # the meaning of a row
    columns: tuple[Column, ...]  # its columns, the partition column last
    checks: tuple[Check, ...] = ()  # constraints of every row
    contract: Contract | None = None  # the schema of its messages; None if they are kept undecoded
    identity: str | None = None  # the column that identifies repeats; None if there are none
    # columns in which a repeat equals the first message, which limit the search; without any, all rows are searched
    repeats_share: tuple[str, ...] = ()


_ORIGIN = (
    Column(TOPIC, pa.string(), False, "Topic of the message."),
    Column(PARTITION, pa.int32(), False, "Its partition."),
    Column(OFFSET, pa.int64(), False, "Its offset in the partition."),
    Column(PUBLISHED_AT, MOMENT, False, "When the broker or the producer says it was published."),
    Column(
        TOPIC_ID, pa.string(), True, "Kafka's id of the topic; one that was created again has another, and new offsets."
    ),
)
_MESSAGE = (
    Column("key", pa.string(), True, "Key as text; bytes that are not UTF-8 are replaced."),
    Column("key_bytes", pa.binary(), True, "Key as bytes, where it is not valid UTF-8."),
    Column("value", pa.string(), True, "Value as text; bytes that are not UTF-8 are replaced."),
    Column("value_bytes", pa.binary(), True, "Value as bytes, where it is not valid UTF-8."),
    Column("headers", HEADERS_TYPE, True, "Headers, in order."),
    Column(
        TIMESTAMP_TYPE,
        pa.int32(),
        True,
        "What `published_at` is: 0 when the producer made the message, 1 when the broker took it, -1 not known.",
    ),
)
_PUBLISHED_DAY = Column(DAY, pa.date32(), False, "Day (UTC) on which the message was published.")
_EVENT_DAY = Column(DAY, pa.date32(), False, "Day (UTC) on which the transaction happened.")
_OTHERS = Column(OTHER_FIELDS, pa.string(), True, "JSON text of fields that this release does not know.")


_TRANSACTIONS_TABLE = Table(
    TRANSACTIONS, "Messages of the source topic, as they came.", (*_ORIGIN, *_MESSAGE, _PUBLISHED_DAY)
)
_UNREADABLE_TABLE = Table(
    UNREADABLE,
    "Messages of topics that do not fit their schema.",
    (*_ORIGIN, Column("reason", pa.string(), False, "Why."), *_MESSAGE, _PUBLISHED_DAY),
)


def audit_tables(names: Collection[str], largest_scale: int = 0) -> dict[str, Table]:
    """Return the tables of outputs and verdicts, of unreadable messages, and of transactions.

    The tables of outputs and verdicts are included if they are among the names. `largest_scale` is the event schema's,
    whose values may have more digits than usual.
    """
    scale = max(largest_scale, USUAL_SCALE)
    read = [_output_table(name, USUAL_SCALE if name == VERDICTS else scale) for name in PUBLISHED if name in names]
    tables = [*read, _TRANSACTIONS_TABLE, *([_UNREADABLE_TABLE] if read else [])]
    return {table.name: table for table in tables}


def _output_table(output: str, largest_scale: int) -> Table:
    published = PUBLISHED[output]
    contract = load_contract(published.contract)
    columns = []
    for field in contract.fields:
        comment = field.description.removesuffix(_UNIT_OF_MOMENTS) + " As JSON text." * (field.kind == "object")
        kind = value_type(largest_scale) if field.kind == "decimal" else COLUMN_TYPES[field.kind]
        columns.append(Column(field.name, kind, field.nullable or not field.required, comment))
    is_of_event = any(field.name == "event_time" and not field.nullable for field in contract.fields)
    return Table(
        name=output,
        comment=f"{contract.title}: messages of the output {output}, each once.",
        columns=(*columns, _OTHERS, *_ORIGIN, _EVENT_DAY if is_of_event else _PUBLISHED_DAY),
        checks=(*(check for field in contract.fields for check in field_checks(field)), *published.checks),
        contract=contract,
        identity=published.identity,
        repeats_share=published.repeats_share,
    )


_FIRST_BYTE = b"\0"  # The first byte of a registry prefix, and never of JSON


@dataclass(frozen=True)
class BinaryValues:
    """A decoder of message values."""

    written_in: BinaryFormat  # the format of values that are not JSON
    checkpoint: Path  # of the audit, which keeps the schemas requested so far
    ask: SchemaOf  # requests the schema with a number from the registry

    def shown(self, output: str, value: bytes) -> dict[str, Any]:
        """Decode a message of an output to the fields that JSON would show.

        Raises:
            ValueError: it cannot be decoded.
            BucketsError: the registry cannot be asked.
        """
        if len(value) < PREFIX_BYTES:
            message = "ends in the prefix of a schema registry"
            raise ValueError(message)
        content = value[PREFIX_BYTES:]
        if self.written_in == "protobuf":
            return shown_protobuf(output, content)
        number = int.from_bytes(value[1:PREFIX_BYTES])
        schema = RegisteredSchemas(self.checkpoint, self.ask)(number)
        if schema is None or schema.kind != AVRO:
            message = f"schema {number} is not one of Avro in the registry"
            raise ValueError(message)
        return shown_avro(output, schema.text, content)


TABLE, FAULT = "table", "fault"
_MICROS_OF_DAY = 86_400_000_000
_ROWS_ORIGIN = pa.schema([(column.name, column.type) for column in _ORIGIN if column.name != TOPIC_ID])
_BYTES = [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE), (TIMESTAMP_TYPE, pa.int32())]
MESSAGE_COLUMNS = pa.schema([*_ROWS_ORIGIN, *_BYTES])  # The columns of messages given to a reader
_RAW = pa.schema([(f"raw_{column.name}", column.type) for column in _MESSAGE])
"""The columns of an undecoded message; outputs have fields `key` and `value` themselves."""


class MessageReader:
    """Decodes messages of several topics."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        binary: "BinaryValues | None" = None,
    ) -> None:
        """Decode messages into tables by topic; messages for a table without a contract are kept unchanged.

        `topic_ids` holds the ids of topics that are known; `binary` is needed if values may not be JSON.
        """
        self._binary = binary
        self._tables, self._topic_ids = dict(tables), dict(topic_ids)
        columns = {
            column.name: column.type
            for table in tables.values()
            if table.contract is not None
            for column in table.columns
            if column.name not in (*_ROWS_ORIGIN.names, TOPIC_ID, DAY)
        }
        self._fields = pa.schema(list(columns.items()))
        own = [(TABLE, pa.string()), (FAULT, pa.string()), (DAY, pa.date32()), (TOPIC_ID, pa.string())]
        self.schema: pa.Schema = pa.schema([*own, *_ROWS_ORIGIN, *_RAW, *self._fields])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batches of `MESSAGE_COLUMNS` into batches of `schema`, one row per message."""
        return map(self._read, batches)

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topics = batch.column(TOPIC).to_pylist()
        tables = [self._tables[topic] for topic in topics]
        published = batch.column(PUBLISHED_AT).cast(MOMENT)
        moments, days = published.cast(pa.int64()).to_pylist(), []
        rows: list[Row] = []
        faults: list[str | None] = []
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        for table, key, value, moment in zip(tables, keys, values, moments, strict=True):
            row, fault = None, None
            try:
                row = None if table.contract is None else read_message(table, value, self._binary)
            except ValueError as error:
                fault = str(error)
            row = _text("raw_key", key) | _text("raw_value", value) if row is None else row
            rows.append(row)
            faults.append(fault)
            # In microseconds; the day of a row may be that of its transaction.
            days.append((row.get("event_time", moment) if _EVENT_DAY in table.columns else moment) // _MICROS_OF_DAY)
        columns = {
            TABLE: pa.array([table.name for table in tables], pa.string()),
            FAULT: pa.array(faults, pa.string()),
            DAY: pa.array(days, pa.date32()),
            TOPIC_ID: pa.array(map(self._topic_ids.get, topics), pa.string()),
            PUBLISHED_AT: published,
            "raw_headers": batch.column("headers").cast(HEADERS_TYPE),
            f"raw_{TIMESTAMP_TYPE}": batch.column(TIMESTAMP_TYPE),
        }
        columns |= {name: batch.column(name) for name in (TOPIC, PARTITION, OFFSET)}
        for field in self.schema:
            if field.name not in columns:
                columns[field.name] = pa.array([row.get(field.name) for row in rows], field.type)
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)


def read_message(table: Table, value: bytes | None, binary: "BinaryValues | None" = None) -> Row:
    """Decode a message's value to a row of its table, without the columns for the message's origin.

    Raises:
        ValueError: it does not fit the schema, or violates a constraint of the table.
    """
    assert table.contract is not None
    if binary is not None and table.name in TOPICS and value is not None and value.startswith(_FIRST_BYTE):
        row = table.contract.row_of(binary.shown(table.name, value))
    else:
        row = table.contract.read(value)
    for column in table.columns:
        value = row.get(column.name)
        if isinstance(value, Decimal):
            _, digits, exponent = value.as_tuple()
            scale, whole = column.type.scale, column.type.precision - column.type.scale
            if -int(exponent) > scale or len(digits) + int(exponent) > whole:
                message = f"{column.name}: {value:f} has more digits than the {scale} of its column"
                raise ValueError(message)
    for check in table.checks:
        if not check.holds(row):
            message = f"does not fulfil {check.name}: {check.sql}"
            raise ValueError(message)
    return row


def _text(name: str, data: bytes | None) -> Row:
    """Return bytes as text, and additionally as bytes if they are not valid UTF-8."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {name: data.decode(errors="replace"), f"{name}_bytes": data}


def rows_of(table: Table, read: pa.Table) -> pa.Table:
    """Return the decoded rows of one table, ordered by topic, partition and offset."""
    if table.name == UNREADABLE:
        chosen = read.filter(pc.field(FAULT).is_valid())
    else:
        chosen = read.filter((pc.field(TABLE) == table.name) & ~pc.field(FAULT).is_valid())
    names = {column.name: column.name for column in table.columns}
    if table.contract is None:
        names |= {name.removeprefix("raw_"): name for name in _RAW.names} | {"reason": FAULT}
    taken = pa.table({column.name: chosen[names[column.name]] for column in table.columns})
    schema = pa.schema([pa.field(column.name, column.type, column.nullable) for column in table.columns])
    return taken.cast(schema).sort_by([(TOPIC, "ascending"), (PARTITION, "ascending"), (OFFSET, "ascending")])

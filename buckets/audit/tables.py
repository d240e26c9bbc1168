"""The tables of the audit: their columns with comments, the checks of their rows, and how repeats are recognised.

What the schema of messages says of single fields, as checks of the rows of the audit's tables.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from buckets.outputs.columns import PUBLISHED, VERDICTS
from buckets.outputs.contract import COLUMN_TYPES, MOMENT, OTHER_FIELDS, Contract, Field, load_contract
from buckets.outputs.output import USUAL_SCALE, Check, Row, value_type


def field_checks(field: Field) -> Iterable[Check]:
    """Yield what a schema says of single values: ids are not empty, numbers not too small, choices are kept to."""
    name = field.name
    if name.endswith("id") and field.shortest:
        sql = f"{name} <> ''"
        yield Check(f"{name}_is_not_empty", f"{name} IS NULL OR {sql}" if field.nullable else sql, _not_empty(name))
    if field.minimum is not None:
        sql = f"{name} >= {field.minimum}"
        is_large = _at_least(name, field.minimum)
        yield Check(f"{name}_is_large_enough", f"{name} IS NULL OR {sql}" if field.nullable else sql, is_large)
    if field.kind == "text" and field.choices:
        listed = ", ".join(f"'{choice}'" for choice in field.choices if choice is not None)
        sql = f"{name} IN ({listed})"
        is_known = _among(name, field.choices)
        yield Check(f"{name}_is_known", f"{name} IS NULL OR {sql}" if field.nullable else sql, is_known)


def _not_empty(name: str) -> Callable[[Row], bool]:
    return lambda row: row[name] != ""


def _at_least(name: str, minimum: int) -> Callable[[Row], bool]:
    return lambda row: row[name] is None or bool(row[name] >= minimum)


def _among(name: str, choices: tuple[Any, ...]) -> Callable[[Row], bool]:
    return lambda row: row[name] is None or row[name] in choices


TRANSACTIONS = "transactions"
UNREADABLE = "unreadable"
DAY = "day"
TOPIC, PARTITION, OFFSET, PUBLISHED_AT = "topic", "partition", "offset", "published_at"
TOPIC_ID = "topic_id"
TIMESTAMP_TYPE = "timestamp_type"
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
    comment: str  # what a row is
    columns: tuple[Column, ...]  # its columns, the partition column last
    checks: tuple[Check, ...] = ()  # what every row fulfils
    contract: Contract | None = None  # what its messages hold; None where they are kept as they are
    identity: str | None = None  # the column by which repeats are recognised; None where there are none
    # columns in which a repeat equals the first message, so that only rows like it are searched; without any, all are
    repeats_share: tuple[str, ...] = ()

    @property
    def has_event_day(self) -> bool:
        """Return whether the day of a row is that of its transaction, and not that of the message."""
        return _EVENT_DAY in self.columns


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
    Column("key", pa.string(), True, "Key as text; bytes that are no UTF-8 are replaced."),
    Column("key_bytes", pa.binary(), True, "Key as bytes, where it is not valid UTF-8."),
    Column("value", pa.string(), True, "Value as text; bytes that are no UTF-8 are replaced."),
    Column("value_bytes", pa.binary(), True, "Value as bytes, where it is not valid UTF-8."),
    Column("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), True, "Headers, in order."),
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


def audit_tables(topics: Iterable[str], largest_scale: int = 0) -> dict[str, Table]:
    """Return the tables of outputs and of verdicts with that of what cannot be read, and that of transactions.

    Args:
        topics: the outputs that have topics, and `verdicts` where they have one.
        largest_scale: that of the event schema, where values have more digits than usual.
    """
    scale = max(largest_scale, USUAL_SCALE)
    read = [_output_table(topic, USUAL_SCALE if topic == VERDICTS else scale) for topic in topics]
    tables = [*read, _TRANSACTIONS_TABLE, *([_UNREADABLE_TABLE] if read else [])]
    return {table.name: table for table in tables}


def tables_of(topics: Mapping[str, str], largest_scale: int = 0) -> dict[str, Table]:
    """Return the tables of topics that are kept, given the name of the table of each; as `audit_tables`."""
    return audit_tables((name for name in PUBLISHED if name in topics.values()), largest_scale)


_TRANSACTIONS_TABLE = Table(
    TRANSACTIONS, "Messages of the source topic, as they came.", (*_ORIGIN, *_MESSAGE, _PUBLISHED_DAY)
)
_UNREADABLE_TABLE = Table(
    UNREADABLE,
    "Messages of topics that do not fit their schema.",
    (*_ORIGIN, Column("reason", pa.string(), False, "Why."), *_MESSAGE, _PUBLISHED_DAY),
)


def _output_table(output: str, largest_scale: int) -> Table:
    published = PUBLISHED[output]
    contract = load_contract(published.contract)
    fields = tuple(_column(field, largest_scale) for field in contract.fields)
    is_of_event = any(field.name == "event_time" and not field.nullable for field in contract.fields)
    day = _EVENT_DAY if is_of_event else _PUBLISHED_DAY
    return Table(
        name=output,
        comment=f"{contract.title}: messages of the output {output}, each once.",
        columns=(*fields, _OTHERS, *_ORIGIN, day),
        checks=(*(check for field in contract.fields for check in field_checks(field)), *published.checks),
        contract=contract,
        identity=published.identity,
        repeats_share=published.repeats_share,
    )


def _column(field: Field, largest_scale: int) -> Column:
    comment = field.description.removesuffix(_UNIT_OF_MOMENTS)
    comment = f"{comment} As JSON text." if field.kind == "object" else comment
    kind = value_type(largest_scale) if field.kind == "decimal" else COLUMN_TYPES[field.kind]
    return Column(field.name, kind, field.nullable or not field.required, comment)

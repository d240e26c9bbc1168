"""The tables of the audit: their columns with comments, what every row of them fulfils, and how repeats are known.

A check stands here twice: as SQL, to Spark and to delta-rs alike, which Delta holds every writer to; and as a function,
by which a message that does not fulfil it is put aside before it could make a whole batch fail. A test holds the two
against each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from buckets import outputs
from buckets.contract import (
    COLUMN_TYPES,
    CONTRACTS,
    MOMENT,
    OTHER_FIELDS,
    VALUE,
    Contract,
    Field,
    Row,
    load_contract,
)

TRANSACTIONS = "transactions"
UNREADABLE = "unreadable"
DAY = "day"
TOPIC, PARTITION, OFFSET, PUBLISHED_AT = "topic", "partition", "offset", "published_at"
_LONGEST_LIMIT = 20
"""Characters of a limit that values of their type can be compared with; longer ones are not looked at."""
_UNIT_OF_MOMENTS = " In ms since 1970-01-01T00:00:00Z."


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: pa.DataType
    nullable: bool
    comment: str


@dataclass(frozen=True)
class Check:
    """What every row fulfils.

    Attributes:
        name: of the constraint.
        sql: as Spark's SQL.
        holds: the same for a row in Python.
    """

    name: str
    sql: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True)
class Table:
    """A table of the audit.

    Attributes:
        name: of its folder.
        comment: what a row is.
        columns: its columns, the partition column last.
        checks: what every row fulfils.
        contract: what its messages hold; None where they are kept as they are.
        identity: the column by which repeats are known; None where there are none.
        repeats_share: columns in which a repeat is like the first, so that it is looked for there only.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    checks: tuple[Check, ...] = ()
    contract: Contract | None = None
    identity: str | None = None
    repeats_share: tuple[str, ...] = ()


_PLACE = (
    Column(TOPIC, pa.string(), False, "Topic of the message."),
    Column(PARTITION, pa.int32(), False, "Its partition."),
    Column(OFFSET, pa.int64(), False, "Its offset in the partition."),
    Column(PUBLISHED_AT, MOMENT, False, "When the broker or the producer says it was published."),
)
_MESSAGE = (
    Column("key", pa.string(), True, "Key as text; bytes that are no UTF-8 are replaced."),
    Column("key_bytes", pa.binary(), True, "Key as bytes, where it is not valid UTF-8."),
    Column("value", pa.string(), True, "Value as text; bytes that are no UTF-8 are replaced."),
    Column("value_bytes", pa.binary(), True, "Value as bytes, where it is not valid UTF-8."),
    Column("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), True, "Headers, in order."),
)
_PUBLISHED_DAY = Column(DAY, pa.date32(), False, "Day (UTC) on which the message was published.")
_EVENT_DAY = Column(DAY, pa.date32(), False, "Day (UTC) on which the transaction happened.")
_OTHERS = Column(OTHER_FIELDS, pa.string(), True, "JSON text of fields that this release does not know.")


_ROUNDING = Decimal("0.0000005")
"""An average is compared before it is rounded, which moves it by half of its sixth digit or less."""


def fires(row: Row) -> bool:
    """Whether the value of an alert crosses its limit, as far as a rounded value tells."""
    if len(row["limit"]) > _LONGEST_LIMIT:
        return True
    limit = Decimal(row["limit"])
    is_high, is_low = row["value"] >= limit - _ROUNDING, row["value"] <= limit + _ROUNDING
    if row["operator"] in (">", ">="):
        return bool(is_high)
    if row["operator"] in ("<", "<="):
        return bool(is_low)
    return bool(row["operator"] == "!=" or (is_high and is_low))


_LIMIT = f"CAST(`limit` AS DECIMAL({VALUE.precision}, {VALUE.scale}))"
_IS_HIGH = f"value >= {_LIMIT} - CAST('{_ROUNDING:f}' AS DECIMAL(7, 7))"
_IS_LOW = f"value <= {_LIMIT} + CAST('{_ROUNDING:f}' AS DECIMAL(7, 7))"
_FIRES = (
    f"CASE WHEN length(`limit`) > {_LONGEST_LIMIT} THEN true WHEN operator IN ('>', '>=') THEN {_IS_HIGH} "
    f"WHEN operator IN ('<', '<=') THEN {_IS_LOW} ELSE operator = '!=' OR ({_IS_HIGH} AND {_IS_LOW}) END"
)


def _count_is_in_bounds(row: Row) -> bool:
    if row["count_lower"] is None or row["count_upper"] is None:
        return True
    return bool(row["count_lower"] <= row["count"] <= row["count_upper"])


_OF_VALUES = (
    Check(
        "value_in_bounds", "lower <= value AND value <= upper", lambda row: row["lower"] <= row["value"] <= row["upper"]
    ),
    Check(
        "exact_is_one_value",
        "NOT exact OR (lower = value AND value = upper)",
        lambda row: not row["exact"] or row["lower"] == row["value"] == row["upper"],
    ),
    Check(
        "count_in_bounds",
        "count_lower IS NULL OR count_upper IS NULL OR (count_lower <= count AND count <= count_upper)",
        _count_is_in_bounds,
    ),
)
_OF_ALERTS = (
    *_OF_VALUES,
    Check("exact_is_certain", "NOT exact OR certain", lambda row: not row["exact"] or row["certain"]),
    Check("fired", _FIRES, fires),
    Check("window_has_length", "window_start < window_end", lambda row: bool(row["window_start"] < row["window_end"])),
    Check(
        "window_ends_with_event",
        "window_end = event_time",
        lambda row: bool(row["window_end"] == row["event_time"]),
    ),
)
_CHECKS: dict[str, tuple[Check, ...]] = {
    outputs.ALERTS: _OF_ALERTS,
    outputs.SHADOW_ALERTS: _OF_ALERTS,
    outputs.EVALUATIONS: _OF_VALUES,
    outputs.LATE_EVENTS: (
        Check("is_late", "event_time < clock", lambda row: bool(row["event_time"] < row["clock"])),
        Check(
            "too_late_is_not_applied",
            "NOT (too_late AND applied)",
            lambda row: not (row["too_late"] and row["applied"]),
        ),
    ),
    outputs.COLLISIONS: (
        Check("two_events", "event_id <> other_event_id", lambda row: bool(row["event_id"] != row["other_event_id"])),
    ),
}
_REPEATS_SHARE = {
    # An alert's id says nothing of where its transaction stood.
    outputs.ALERTS: (DAY,),
    outputs.SHADOW_ALERTS: (DAY,),
    # A letter has no time of its own, and may be sent again on another day.
    outputs.DEAD_LETTERS: ("position",),
}


def audit_tables(topics: Iterable[str]) -> dict[str, Table]:
    """The tables of outputs, and those of transactions and of what cannot be read.

    Args:
        topics: the outputs.
    """
    tables = [*map(_output_table, topics), _TRANSACTIONS_TABLE, _UNREADABLE_TABLE]
    return {table.name: table for table in tables}


_TRANSACTIONS_TABLE = Table(
    TRANSACTIONS, "Messages of the source topic, as they came.", (*_PLACE, *_MESSAGE, _PUBLISHED_DAY)
)
_UNREADABLE_TABLE = Table(
    UNREADABLE,
    "Messages of output topics that do not fit their schema.",
    (*_PLACE, Column("reason", pa.string(), False, "Why."), *_MESSAGE, _PUBLISHED_DAY),
)


def _output_table(output: str) -> Table:
    contract = load_contract(CONTRACTS[output])
    fields = tuple(map(_column, contract.fields))
    day = _EVENT_DAY if any(field.name == "event_time" for field in contract.fields) else _PUBLISHED_DAY
    checks = [check for field in contract.fields for check in _field_checks(field)]
    return Table(
        name=output,
        comment=f"{contract.title}: messages of the output {output}, each once.",
        columns=(*fields, _OTHERS, *_PLACE, day),
        checks=(*checks, *_CHECKS.get(output, ())),
        contract=contract,
        identity="alert_id" if any(field.name == "alert_id" for field in contract.fields) else "id",
        repeats_share=_REPEATS_SHARE.get(output, (DAY, "position")),
    )


def _column(field: Field) -> Column:
    comment = field.description.removesuffix(_UNIT_OF_MOMENTS)
    comment = f"{comment} As JSON text." if field.kind == "object" else comment
    return Column(field.name, COLUMN_TYPES[field.kind], field.nullable or not field.required, comment)


def _field_checks(field: Field) -> Iterable[Check]:
    """What a schema says of single values: ids are not empty, numbers not too small, choices are kept to."""
    name = field.name
    if name.endswith("id") and field.shortest:
        sql = f"{name} <> ''"
        yield Check(f"{name}_is_not_empty", f"{name} IS NULL OR {sql}" if field.nullable else sql, _not_empty(name))
    if field.minimum is not None:
        yield Check(f"{name}_is_large_enough", f"{name} >= {field.minimum}", _at_least(name, field.minimum))
    if field.kind == "text" and field.choices:
        listed = ", ".join(f"'{choice}'" for choice in field.choices)
        yield Check(f"{name}_is_known", f"{name} IN ({listed})", _among(name, field.choices))


def _not_empty(name: str) -> Callable[[Row], bool]:
    return lambda row: row[name] != ""


def _at_least(name: str, minimum: int) -> Callable[[Row], bool]:
    return lambda row: bool(row[name] >= minimum)


def _among(name: str, choices: tuple[Any, ...]) -> Callable[[Row], bool]:
    return lambda row: row[name] in choices

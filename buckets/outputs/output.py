"""An output: a table that scoring fills, with everything that sinks, the audit and replays need to know about it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


USUAL_SCALE = 12
"""The scale for which every audit table has room, whatever the event schema; larger scales get more."""


def value_type(largest_scale: int) -> pa.DataType:
    """Return the type of values: a decimal with room for any 64-bit sum and for an average's extra digits.

    This fits all measures of an event schema, since their scales differ by at most `MOST_APART`.
    """
    return pa.decimal128(38, largest_scale + 6)


VALUE = value_type(USUAL_SCALE)
"""The placeholder type for values in declarations of outputs, and the type in most audit tables."""


@dataclass(frozen=True)
class Check:
    """A condition that every row of an audit table meets.

    It is written twice: as SQL, for Spark and delta-rs alike, which Delta enforces for every writer; and as a function,
    which puts a failing message aside before it could make a whole batch fail. A test compares both.
    """

    name: str  # of the constraint
    sql: str  # as Spark's SQL
    holds: Callable[[Row], bool]  # the same for a row in Python


@dataclass(frozen=True)
class Published:
    """How rows are sent as messages, and how the audit keeps these as a table."""

    contract: str  # the schema of a message, its name and version in `schemas`, such as `alert-v2`
    checks: tuple[Check, ...] = ()  # conditions on rows, besides the schema's on single fields
    identity: str = "id"  # the field by which repeats are recognised
    # columns in which a repeat equals the first message, so that only rows like it are searched; without any, all are
    repeats_share: tuple[str, ...] = ("day", "position")

    @property
    def version(self) -> int:
        """Return the version of its contract."""
        return int(self.contract.rpartition("-v")[2])


@dataclass(frozen=True)
class Output:
    """A table that scoring fills."""

    # of its table, its file of JSON lines, its topic unless the configuration names another one, and of its table in
    # what `buckets.evaluate` returns
    name: str
    columns: Iterable[pa.Field]  # its columns inside the query; values have the type `VALUE`
    published: Published | None = None  # how its rows go out as messages; None where it has no topic
    # columns that identify its rows, by which a replay pairs them with recorded ones; a replay skips an output
    # without any
    identity: tuple[str, ...] = ()

    def columns_for(self, largest_scale: int) -> pa.Schema:
        """Return its columns with the scale of values for an event schema."""
        kind = value_type(largest_scale)
        return pa.schema([field.with_type(kind) if field.type == VALUE else field for field in self.columns])


_LONGEST_LIMIT = 20
"""Characters of a limit that can be compared with values of their type; longer limits are not checked."""
_ROUNDING = Decimal("0.0000005")
"""An average is compared before it is rounded, which moves it by half of its sixth digit or less."""


def fires(row: Row) -> bool:
    """Return whether the value of an alert, if it has one, crosses its limit, as far as its rounding shows."""
    if row["limit"] is None or row["value"] is None or len(row["limit"]) > _LONGEST_LIMIT:
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
    f"CASE WHEN `limit` IS NULL OR value IS NULL OR length(`limit`) > {_LONGEST_LIMIT} THEN true "
    f"WHEN operator IN ('>', '>=') THEN {_IS_HIGH} "
    f"WHEN operator IN ('<', '<=') THEN {_IS_LOW} ELSE operator = '!=' OR ({_IS_HIGH} AND {_IS_LOW}) END"
)


def _count_is_in_bounds(row: Row) -> bool:
    if row["count_lower"] is None or row["count_upper"] is None:
        return True
    return bool(row["count"] is not None and row["count_lower"] <= row["count"] <= row["count_upper"])


def _value_is_in_bounds(row: Row) -> bool:
    lower, value, upper = row["lower"], row["value"], row["upper"]
    if value is None:
        return True
    return bool(lower is not None and upper is not None and lower <= value <= upper)


OF_VALUES = (
    Check(
        "value_in_bounds",
        "value IS NULL OR (lower <= value AND value <= upper)",
        _value_is_in_bounds,
    ),
    Check(
        "exact_is_one_value",
        "NOT exact OR value IS NULL OR (lower = value AND value = upper)",
        lambda row: not row["exact"] or row["value"] is None or row["lower"] == row["value"] == row["upper"],
    ),
    Check(
        "value_or_terms",
        "value IS NOT NULL OR terms IS NOT NULL",
        lambda row: row["value"] is not None or row["terms"] is not None,
    ),
    Check(
        "count_in_bounds",
        "count_lower IS NULL OR count_upper IS NULL OR (count_lower <= count AND count <= count_upper)",
        _count_is_in_bounds,
    ),
)
OF_ALERTS = (
    *OF_VALUES,
    Check("exact_is_certain", "NOT exact OR certain", lambda row: not row["exact"] or row["certain"]),
    Check("fired", _FIRES, fires),
    Check("window_has_length", "window_start < window_end", lambda row: bool(row["window_start"] < row["window_end"])),
    Check(  # All windows may end before the event, for example by an offset.
        "window_ends_by_event",
        "window_end <= event_time",
        lambda row: bool(row["window_end"] <= row["event_time"]),
    ),
)

"""What every row of a table of the audit fulfils.

A check is written twice here: as SQL, for Spark and delta-rs alike, which Delta holds every writer to; and as a
function, which puts a message aside that does not fulfil it, before it could make a whole batch fail. A test compares
the two.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from buckets.outputs import columns
from buckets.outputs.contract import VALUE, Field, Row

_LONGEST_LIMIT = 20
"""Characters of a limit that can be compared with values of their type; longer limits are not checked."""
_ROUNDING = Decimal("0.0000005")
"""An average is compared before it is rounded, which moves it by half of its sixth digit or less."""


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


def fires(row: Row) -> bool:
    """Whether an alert's value crosses its limit, as far as a rounded value tells; a rule with features has none."""
    if row["limit"] is None or row["value"] is None:
        return True
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
    f"CASE WHEN `limit` IS NULL OR value IS NULL OR length(`limit`) > {_LONGEST_LIMIT} THEN true "
    f"WHEN operator IN ('>', '>=') THEN {_IS_HIGH} "
    f"WHEN operator IN ('<', '<=') THEN {_IS_LOW} ELSE operator = '!=' OR ({_IS_HIGH} AND {_IS_LOW}) END"
)


def _count_is_in_bounds(row: Row) -> bool:
    if row["count_lower"] is None or row["count_upper"] is None:
        return True
    return bool(row["count_lower"] <= row["count"] <= row["count_upper"])


_OF_VALUES = (
    Check(
        "value_in_bounds",
        "value IS NULL OR (lower <= value AND value <= upper)",
        lambda row: row["value"] is None or row["lower"] <= row["value"] <= row["upper"],
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
_OF_OUTPUTS: dict[str, tuple[Check, ...]] = {
    columns.ALERTS: _OF_ALERTS,
    columns.SHADOW_ALERTS: _OF_ALERTS,
    columns.HELD_ALERTS: _OF_ALERTS,
    columns.EVALUATIONS: _OF_VALUES,
    columns.LATE_EVENTS: (
        Check("is_late", "event_time < clock", lambda row: bool(row["event_time"] < row["clock"])),
        Check(
            "too_late_is_not_applied",
            "NOT (too_late AND applied)",
            lambda row: not (row["too_late"] and row["applied"]),
        ),
    ),
    columns.VERDICTS: (
        Check(
            "alert_or_event",
            "alert_id IS NOT NULL OR event_id IS NOT NULL",
            lambda row: row["alert_id"] is not None or row["event_id"] is not None,
        ),
    ),
    columns.COLLISIONS: (
        Check("two_events", "event_id <> other_event_id", lambda row: bool(row["event_id"] != row["other_event_id"])),
    ),
}


def row_checks(output: str, fields: Iterable[Field]) -> tuple[Check, ...]:
    """The checks of an output's rows: those of single values, and then those of the output.

    Args:
        output: its name.
        fields: what its messages hold.
    """
    of_fields = [check for field in fields for check in _field_checks(field)]
    return (*of_fields, *_OF_OUTPUTS.get(output, ()))


def _field_checks(field: Field) -> Iterable[Check]:
    """What a schema says of single values: ids are not empty, numbers not too small, choices are kept to."""
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

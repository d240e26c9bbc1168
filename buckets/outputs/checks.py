"""What the values of evaluations and alerts fulfil in every row of the audit's tables."""

from decimal import Decimal

from buckets.outputs.output import VALUE, Check, Row

_LONGEST_LIMIT = 20
"""Characters of a limit that can be compared with values of their type; longer limits are not checked."""
_ROUNDING = Decimal("0.0000005")
"""An average is compared before it is rounded, which moves it by half of its sixth digit or less."""


def fires(row: Row) -> bool:
    """Return whether the value of an alert, if it has one, crosses its limit, as far as a rounded value tells."""
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
    Check(
        "window_ends_with_event",
        "window_end = event_time",
        lambda row: bool(row["window_end"] == row["event_time"]),
    ),
)

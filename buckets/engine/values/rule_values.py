"""The values of rules with limits, which the kernel gives as integers, as the columns of outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.schema import EventSchema
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.numbers.decimal128 import decimals
from buckets.numbers.fixed_point import INT64_MAX
from buckets.outputs.output import value_type

_MOST_OF_FACTOR = 18
_VALUES = ("whole", "micro", "event_count")
_BOUNDS = ("lower_whole", "lower_micro", "upper_whole", "upper_micro", "exact", "count_lower", "count_upper")
RowColumns = Mapping[str, npt.NDArray[Any]]
"""What some rows say of values: `_VALUES`, and `_BOUNDS` only where some window is uncertain."""
ROW_COLUMNS = (*_VALUES, *_BOUNDS)


def row_columns(rows: Rows) -> RowColumns:
    """Return what rows say of values."""
    is_known = rows.exact.all() and np.array_equal(rows.count_lower, rows.count_upper)
    return {name: getattr(rows, name) for name in (_VALUES if is_known else ROW_COLUMNS)}


def number_columns(
    plan: GroupPlan, schema: EventSchema, rules: npt.NDArray[np.int32], rows: RowColumns
) -> dict[str, pa.Array]:
    """Return value, bounds and counts as outputs have them; a value of no events is NULL.

    Args:
        plan: the plan of the rules' group.
        schema: the event schema.
        rules: for each row the index of its rule.
        rows: what the rows say.
    """
    kind = value_type(schema.largest_scale)
    scales = [0 if rule.measure is None else schema.measures[rule.measure].scale for rule in plan.rules]
    # How many of the last digits of a decimal make one unit of a rule's values: of small ones more than 64 bits say.
    digits = np.array([kind.scale - scale for scale in scales], np.int64)[rules]
    beyond, factors = _powers(digits - _MOST_OF_FACTOR), _powers(np.minimum(digits, _MOST_OF_FACTOR))
    count = count_lower = count_upper = rows["event_count"]
    value = lower = upper = decimals(_times(rows["whole"], beyond), rows["micro"], factors, kind)
    exact = np.ones(len(rules), np.bool_)
    if "exact" in rows:
        count_lower, count_upper, exact = rows["count_lower"], rows["count_upper"], rows["exact"]
        lower = decimals(_times(rows["lower_whole"], beyond), rows["lower_micro"], factors, kind)
        upper = decimals(_times(rows["upper_whole"], beyond), rows["upper_micro"], factors, kind)
    return {
        "value": _null_without_events(value, count),
        "lower": _null_without_events(lower, count_upper),
        "upper": _null_without_events(upper, count_upper),
        "exact": pa.array(exact),
        "count": pa.array(count),
        "count_lower": pa.array(count_lower),
        "count_upper": pa.array(count_upper),
    }


def _powers(digits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.power(np.int64(10), np.maximum(digits, 0))


def _times(whole: npt.NDArray[np.int64], factors: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return counts and scores times what is missing of their factors; an event schema has no other scale so small."""
    if not len(factors) or factors.max() == 1:
        return whole
    if (np.abs(whole) > INT64_MAX // factors).any():
        message = "a count or a score has more digits than a column of values has room for"
        raise OverflowError(message)
    return whole * factors


def _null_without_events(values: pa.Array, events: npt.NDArray[np.int64]) -> pa.Array:
    is_null = events == 0
    return pc.if_else(pa.array(is_null), pa.scalar(None, values.type), values) if is_null.any() else values

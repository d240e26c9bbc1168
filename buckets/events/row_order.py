"""The order of a source's rows: the values of its arrival column, as integers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PER_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def can_order(kind: pa.DataType) -> bool:
    """Return whether a column of this type can give the arrival order."""
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    return bool(whole or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def orders(column: pa.Array, name: str) -> tuple[pa.Array, pa.Array]:
    """Return the order of rows, from their arrival column.

    Args:
        column: whole numbers, or timestamps or dates (as nanoseconds, so that files of other units compare).
        name: of the column.

    Returns:
        Arrow int64, 0 if a row has none; and Arrow string, why it has none, null if it has one.
    """
    kind = column.type
    if not can_order(kind):
        reason = pa.scalar(f"{name}: is of type {kind}, which gives no arrival order")
        return pa.array(np.zeros(len(column), np.int64)), pa.repeat(reason, len(column))
    factor = 1
    if pa.types.is_timestamp(kind):
        factor = _PER_NS[kind.unit]
    elif pa.types.is_date(kind):
        column, factor = column.cast(pa.timestamp("s")), _PER_NS["s"]
    most = np.iinfo(np.int64).max // factor
    if pa.types.is_uint64(kind):
        fits = pc.less_equal(column, pa.scalar(most, kind))
    elif pa.types.is_decimal(kind):
        fits = pa.array([None if number is None else abs(number) <= most for number in column.to_pylist()], pa.bool_())
    else:
        column = column.cast(pa.int64())
        fits = pc.and_(pc.less_equal(column, most), pc.greater_equal(column, -most))
    numbers = pc.cast(pc.if_else(pc.fill_null(fits, False), column, pa.scalar(None, column.type)), pa.int64())
    numbers = numbers.fill_null(0)
    missing = pa.scalar(f"{name}: is missing or null, and gives the arrival order")
    large = pa.scalar(f"{name}: is too large to give the arrival order")
    broken = pc.if_else(column.is_null(), missing, pc.if_else(fits, pa.scalar(None, pa.string()), large))
    return pc.multiply(numbers, factor), broken

"""Dates, timestamps and times of day as text, for fields that are declared as a `string`.

The text of a moment does not depend on the unit or the zone of its column, so that two files that keep the same moment
in other types mean the same key: UTC, six digits after the second, nine if there are any finer ones. A timestamp
without a zone is shown without one.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Faults = dict[int, str]
"""By row, why its value does not fit."""
_PER_US = {"s": 1_000_000, "ms": 1000, "us": 1}


def moment_text(column: pa.Array) -> tuple[pa.Array, Faults]:
    """Write a column of dates, timestamps or times as text.

    Returns:
        Arrow string, and `{row: reason}` of those that are too far away to be written.
    """
    if pa.types.is_date(column.type):
        return _without_wild(column, pc.cast(column, pa.string()))
    kind = pa.time64("us") if pa.types.is_time(column.type) else pa.timestamp("us", column.type.tz and "UTC")
    integers = pa.int32() if pa.types.is_time32(column.type) else pa.int64()
    numbers = pc.cast(pc.cast(column, integers), pa.int64())
    units = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    if column.type.unit == "ns":
        whole, finer = np.divmod(units, 1000)
    else:
        factor = _PER_US[column.type.unit]
        most = np.iinfo(np.int64).max // factor
        # What is clipped here is in years that are not written anyway.
        whole, finer = np.clip(units, -most, most) * factor, np.zeros_like(units)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    text, faults = _without_wild(column, pc.cast(pa.array(whole, mask=missing).cast(kind), pa.string()))
    return _with_nanoseconds(text, finer), faults


def _with_nanoseconds(text: pa.Array, finer: np.ndarray) -> pa.Array:
    """Add three digits to the text where they are not 0."""
    rows = np.flatnonzero(finer)
    if not len(rows):
        return text
    values = text.to_pylist()
    for row in rows:
        zone = "Z" if values[row].endswith("Z") else ""
        values[row] = f"{values[row].removesuffix('Z')}{finer[row]:03}{zone}"
    return pa.array(values, pa.string())


def _without_wild(column: pa.Array, text: pa.Array) -> tuple[pa.Array, Faults]:
    """Take out what Arrow says of years that it does not write."""
    wild = pc.fill_null(pc.starts_with(text, "<"), False)
    if not pc.any(wild).as_py():
        return text, {}
    rows = np.flatnonzero(wild.to_numpy(zero_copy_only=False))
    faults = {int(row): f"a {column.type} that lies outside the years that can be written" for row in rows}
    return pc.if_else(wild, pa.scalar(None, pa.string()), text), faults

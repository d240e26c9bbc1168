"""Values as a binary format has them, on their way to columns of Arrow from which `arrivals.convert` goes on.

The columns have types that those of Parquet have too. Where messages write one field in several types, as unions and
changes of a schema make it, all become text.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events import conversion
from buckets.events.clock_times import PER_SECOND, Faults
from buckets.events.schema import EventSchema
from buckets.list_columns import list_of
from buckets.numbers.fixed_point import format_scaled

Int64s = npt.NDArray[np.int64]
YEAR_1_S, YEAR_10000_S = -62_135_596_800, 253_402_300_800
"""The seconds in which the year 1 begins and the year 9999 has ended: what is outside has no text in ISO 8601."""

_LARGEST_SCALE, _MOST_BYTES = 1000, 500
"""Digits after the point, or zeros before it, and bytes with which a decimal is still written out."""

NO_OBJECT = "is in something that is not an object, and must be in one"
"""What is wrong with a field whose path leads into a value."""


def fitted(name: str, column: pa.Array, faults: Faults, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return a column as its field wants it: no boolean for text, the time of an event in its unit.

    Floating point becomes the whole numbers that it is where these are wanted, and else its shortest decimal text.
    """
    if pa.types.is_boolean(column.type) and schema.holds_text(name):
        texts = pc.cast(column, pa.string()).to_pylist()
        return pa.nulls(len(column), pa.string()), {
            row: f"is {text}, and must be text" for row, text in enumerate(texts) if text is not None
        }
    if pa.types.is_floating(column.type):
        kinds = {} if schema.is_time(name) else schema.attributes | schema.arrays
        kind = "string" if schema.holds_text(name) else kinds.get(name)
        if kind is None or kind == "boolean":
            return pc.cast(column, pa.string()), faults
        column, of_floats = conversion.attributes(column, kind)
        return column, of_floats | faults
    if schema.is_time(name) and schema.event_time.unit != "iso8601":
        column = _as_number(column, schema.event_time.unit)
    return column, faults


def joined(parts: Sequence[pa.Array]) -> tuple[pa.Array, Faults]:
    """Join columns of one field: as they are if they are of one type, else as text; say what has no text, by row."""
    known = [part for part in parts if not pa.types.is_null(part.type)]
    if not known:
        return pa.nulls(sum(map(len, parts)), pa.string()), {}
    faults: Faults = {}
    kind = known[0].type
    if any(part.type != kind for part in known):
        kind, before, texts = pa.string(), 0, []
        for part in parts:
            text, of_part = conversion.attributes(part.cast(kind) if pa.types.is_null(part.type) else part, "string")
            faults |= {before + row: reason for row, reason in of_part.items()}
            texts.append(text)
            before += len(part)
        parts = texts
    return pa.concat_arrays([part.cast(kind) for part in parts]), faults


def decimals(
    contents: Sequence[bytes | None], scales: Sequence[int], precision: int | None = None
) -> tuple[pa.Array, Faults]:
    """Return decimals to the digit, as text, from whole numbers in two's complement.

    A scale is how many digits are behind the point; below 0, how many zeros follow. Faulty are those that are too long
    to be written out, or have more digits than `precision`.
    """
    most = None if precision is None else 10 ** min(precision, 3 * _MOST_BYTES)  # A byte has less than three digits.
    texts: list[str | None] = []
    faults: Faults = {}
    for row, (content, scale) in enumerate(zip(contents, scales, strict=True)):
        if content is None:
            texts.append(None)
            continue
        number = int.from_bytes(content, signed=True)
        if abs(scale) > _LARGEST_SCALE or number.bit_length() > 8 * _MOST_BYTES:
            faults[row] = f"a decimal has {len(content):,} bytes and a scale of {scale:,}"
        elif most is not None and abs(number) >= most:
            faults[row] = f"a decimal has more than the {precision} digits of its type"
        texts.append(None if row in faults else format_scaled(number * 10 ** max(0, -scale), max(0, scale)))
    return pa.array(texts, pa.string()), faults


def list_column(
    name: str,
    lists: Sequence[Sequence[Any] | None],
    read: Callable[[list[Any]], tuple[pa.Array, Faults]],
    schema: EventSchema,
) -> tuple[pa.Array, Faults]:
    """Return the column of an array, and what is wrong with it.

    `read` returns the elements of all lists, one after the other, as a column, and what is wrong with them.
    """
    counts = np.array([0 if elements is None else len(elements) for elements in lists], np.int64)
    faults = {
        int(row): conversion.too_many(int(counts[row])) for row in np.flatnonzero(counts > conversion.MOST_ELEMENTS)
    }
    counts[list(faults)] = 0
    elements, of_elements = read([element for row, each in enumerate(lists) if counts[row] for element in each or ()])
    is_there = np.array([elements is not None for elements in lists], np.bool_)
    column, of_kind = conversion.arrays(list_of(elements, counts, is_there), schema.arrays[name])
    return column, of_kind | conversion.of_rows(of_elements, counts) | faults


def _as_number(column: pa.Array, unit: str) -> pa.Array:
    """Return timestamps with a zone as the number of units since the epoch; anything else as it is."""
    if not getattr(column.type, "tz", None):
        return column
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    ticks = pc.cast(column, pa.int64()).fill_null(0).to_numpy()
    times_ms = ticks // (PER_SECOND[column.type.unit] // 1000)
    if unit in ("s", "ns"):  # Nanoseconds of far years have more than 64 bits.
        places, zeros = (3, "") if unit == "s" else (0, "000000")
        texts = [format_scaled(time_ms, places) + zeros for time_ms in times_ms.tolist()]
        return pa.array(texts, pa.string(), mask=is_null)
    return pa.array(times_ms * (PER_SECOND[unit] // 1000), mask=is_null)


def without_faulty(column: pa.Array, faults: Faults) -> pa.Array:
    """Return a column with null in the place of values that are faulty, which stand for nothing that was written."""
    if not faults:
        return column
    is_faulty = np.zeros(len(column), np.bool_)
    is_faulty[list(faults)] = True
    return pc.if_else(pa.array(is_faulty), pa.scalar(None, column.type), column)

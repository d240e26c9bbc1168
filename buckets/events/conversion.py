"""Converts a column of events as it arrives (text or typed) into the engine's own type, and finds faulty values.

Each function takes an Arrow array and returns the converted values and `{row: reason}`. It converts the column at once
if all values fit, and otherwise row by row. Nulls pass through: this module does not decide which fields may be null.
"""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, ROUND_FLOOR
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s
from buckets.events.clock_times import PER_SECOND, Faults, fitting_unit, moment_text, read_texts, shown, unit_hint
from buckets.events.schema import AttributeType, EventSchema, EventTime, Measure
from buckets.json_text import write_json
from buckets.list_columns import element_type, list_of, plain_list
from buckets.numbers.fixed_point import (
    INT64_MAX,
    INT64_MIN,
    integer_at,
    read_number,
    to_rounded,
    to_scaled,
    whole_digits,
)
from buckets.time_zone import instants_ms

_LONGEST_PLAIN = 30
"""Arrow's decimal parser is exact up to 38 digits and silently wraps beyond; longer text takes the slow way."""
FEW = 32  # So few values are checked one by one, which is faster than a call or two of Arrow's functions
_MOST_DIGITS = len(str(INT64_MAX))
_MOST_DIGITS_OF_TIME = 21
_DIGITS_OF_FLOATS = {16: 11, 32: 24, 64: 53}  # By the size of a float in bits, the binary digits that it keeps
ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}
"""The Arrow types of attributes and elements of arrays, by their declared types."""
MOST_ELEMENTS = 10_000  # Elements of an array in one event
NO_LIST = "is one value, and must be a list"
A_LIST = "is a list, and must be one value; [0] behind its name is its first element"
TIMES, COUNTED, WITHOUT_ZONE, TWICE, SKIPPED = "times", "counted", "without_zone", "twice", "skipped"
"""What times are counted by: all of them, numbers, those without a zone, and those that clocks show twice or skip."""
MISFITS = {unit: f"fits_{unit}" for unit in PER_SECOND}  # The same of absurd times, by the unit that would fit
_MOST_S = INT64_MAX // 1000
_PLACES = {"s": 3, "ms": 0, "us": -3, "ns": -6}  # By unit, by how many places the decimal point moves to give ms


def _each(given: Iterable[Any], convert: Callable[[Any], Any], filler: Any) -> tuple[list[Any], Faults]:
    values, faults = [], {}
    for row, value in enumerate(given):
        converted = filler
        if value is not None:
            try:
                converted = convert(value)
            except ValueError as error:
                faults[row] = str(error)
        values.append(converted)
    return values, faults


def _is_text(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _is_plain(column: pa.Array, longest: int, unwanted: str) -> bool:
    """Return whether texts are short, and free of characters that Arrow's parsers treat differently."""
    if len(column) <= FEW:
        texts = [text for text in column.to_pylist() if text is not None]
        return all(len(text.encode()) <= longest and unwanted not in text.lower() for text in texts)
    if (pc.max(pc.binary_length(column)).as_py() or 0) > longest:
        return False
    return pc.any(pc.match_substring(column, unwanted, ignore_case=True)).as_py() is not True


def python_value(value: pa.Scalar) -> Any:
    """Return a value for display; as text if Python cannot represent its time or zone."""
    try:
        return value.as_py()
    except (ValueError, ArithmeticError, LookupError):
        number = value.value if hasattr(value, "value") else "a value"
        return f"{number} of type {value.type}"


def _as_text(column: pa.Array) -> tuple[pa.Array, Faults]:
    """Convert a column into text, with a fault for each row that has no text."""
    if _is_text(column):
        return column, {}
    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type) or pa.types.is_date(column.type):
        return moment_text(column)
    if pa.types.is_decimal(column.type):
        return _decimal_text(column), {}
    if element_type(column.type) is not None:
        return pa.nulls(len(column), pa.string()), _of_all(column, A_LIST)
    if not pa.types.is_duration(column.type):  # Its text would be a number without its unit.
        try:
            return pc.cast(column, pa.string()), {}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    values, faults = _each(map(python_value, column), _text_of, None)
    return pa.array(values, pa.string()), faults


def _of_all(column: pa.Array, reason: str) -> Faults:
    return dict.fromkeys(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist(), reason)


def _decimal_text(column: pa.Array) -> pa.Array:
    """Write decimals with all digits of their scale; Arrow writes those near 0 with an exponent."""
    text = pc.cast(column, pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        text = pa.array([None if number is None else format(number, "f") for number in column.to_pylist()], pa.string())
    return text


def _text_of(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    message = f"{shown(value)} is not text"
    raise ValueError(message)


def _converted(column: pa.Array, convert: Callable[[str], Any], filler: Any) -> tuple[list[Any], Faults]:
    """Convert a column row by row, through its text."""
    text, unreadable = _as_text(column)
    values, faults = _each(text.to_pylist(), convert, filler)
    return values, faults | unreadable


def _decimal_to_scaled(column: pa.Array) -> Int64s | None:
    """Return the unscaled integers of a decimal128 array, 0 for null; None if one exceeds 64 bits."""
    filled = column.fill_null(0) if column.null_count else column
    halves = np.frombuffer(filled.buffers()[1], np.int64).reshape(-1, 2)[filled.offset : filled.offset + len(filled)]
    low, high = halves[:, 0], halves[:, 1]
    return low.copy() if bool(np.all(high == low >> 63)) else None


def measures(column: pa.Array, measure: Measure) -> tuple[Int64s, Faults, Flags | None]:
    """Convert decimals into integers at the scale of their measure; null becomes 0.

    Binary floating point is read by its shortest decimal text, so that 0.1 is one tenth.

    Returns:
        The integers, the faults, and a bool array of which were rounded; None instead of that if none was.
    """
    scale = measure.scale
    scaled = _fitting(column, scale)
    if scaled is not None:
        return scaled, {}, None
    if measure.round is not None:
        return _rounded(column, scale)
    convert = partial(to_scaled, scale=scale)
    if pa.types.is_decimal(column.type):
        values, faults = _each(column.to_pylist(), lambda number: convert(format(number, "f")), 0)
    else:
        values, faults = _converted(column, convert, 0)
    return np.array(values, np.int64), faults, None


def _fitting(column: pa.Array, scale: int) -> Int64s | None:
    """Convert a whole column of decimals at once; None if some row needs a closer look."""
    if pa.types.is_integer(column.type):
        integers = _integers(pc.cast(column, pa.int64(), safe=False))
        most = INT64_MAX // 10**scale
        if not pa.types.is_uint64(column.type) and bool(np.all((integers <= most) & (integers >= -most))):
            scaled: Int64s = integers * 10**scale
            return scaled
    elif pa.types.is_decimal(column.type) or (_is_text(column) and _is_plain(column, _LONGEST_PLAIN, "e")):
        try:
            return _decimal_to_scaled(pc.cast(column, pa.decimal128(38, scale)))
        except pa.ArrowInvalid:
            pass
    return None


def _rounded(column: pa.Array, scale: int) -> tuple[Int64s, Faults, Flags | None]:
    """Convert decimals as text, each distinct one once, rounding half-even those with more digits."""
    text, unreadable = _as_text(column)
    different = text.dictionary_encode()
    known, faulty = _each(different.dictionary.to_pylist(), lambda each: to_rounded(each, scale), (0, False))
    codes = different.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    numbers = np.array([number for number, _ in (*known, (0, False))], np.int64)
    is_rounded = np.array([rounded for _, rounded in (*known, (0, False))], np.bool_)
    faults = {int(row): faulty[code] for row, code in enumerate(codes.tolist()) if code in faulty} if faulty else {}
    rounded = is_rounded[codes]
    return numbers[codes], faults | unreadable, rounded if rounded.any() else None


def _whole_number(text: str) -> int:
    number = read_number(text)
    if whole_digits(number) <= _MOST_DIGITS:
        integer, whole = integer_at(number, 0, ROUND_DOWN)
        if whole and INT64_MIN <= integer <= INT64_MAX:
            return integer
    message = f"{shown(text)} is not a 64-bit integer"
    raise ValueError(message)


def _longs(column: pa.Array) -> tuple[pa.Array, Faults]:
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return pc.cast(column, pa.int64()), {}
    if _is_text(column) and _is_plain(column, 20, "x"):
        try:
            return pc.cast(column, pa.int64()), {}
        except pa.ArrowInvalid:
            pass
    values, faults = _converted(column, _whole_number, None)
    return pa.array(values, pa.int64()), faults


def _whole_floats(column: pa.Array) -> tuple[pa.Array, Faults]:
    """Return floats as whole numbers, with a fault for those that are not, or too large to be unambiguous.

    From 2**53 on two ids can be the same double, and its decimal text has digits that nobody sent.
    """
    most = 2 ** _DIGITS_OF_FLOATS[column.type.bit_width]
    values = pc.cast(column, pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # NaN of some bits
        is_exact = (np.abs(values) < most) & (values == np.trunc(values))
    faults = {}
    for row in np.flatnonzero(~is_exact).tolist():
        value = float(values[row])
        what = "and no whole number, as a text or a long must be"
        if math.isfinite(value) and abs(value) >= most:
            what = f"of {most:,} or more, whose last digits are lost"
        faults[row] = f"{value!r} is floating point {what}; write text or integers"
    missing = column.is_null().to_numpy(zero_copy_only=False) | ~is_exact
    return pa.array(np.where(is_exact, values, 0).astype(np.int64), mask=missing), faults


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        message = f"{shown(text)} is neither true nor false"
        raise ValueError(message)
    return text.lower() == "true"


def attributes(column: pa.Array, kind: AttributeType) -> tuple[pa.Array, Faults]:
    """Convert attributes into their declared type: Arrow string, int64 or bool.

    A float becomes text or a long only if it holds a whole number exactly.
    """
    if pa.types.is_floating(column.type) and kind != "boolean":
        whole, faults = _whole_floats(column)
        return pc.cast(whole, ARROW_TYPES[kind]), faults
    if kind == "long":
        return _longs(column)
    if kind == "boolean":
        if pa.types.is_boolean(column.type):
            return column, {}
        values, faults = _converted(column, _boolean, None)
        return pa.array(values, pa.bool_()), faults
    text, faults = _as_text(column)
    return strings(text), faults


def strings(column: pa.Array) -> pa.Array:
    """Return a column as text, unchanged if it is text already: even a cast that does nothing costs 10 us."""
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def column_types(schema: EventSchema) -> dict[str, pa.DataType]:
    """Return the Arrow types of attributes and arrays, by name."""
    attributes = {name: ARROW_TYPES[kind] for name, kind in schema.attributes.items()}
    return attributes | {name: pa.list_(ARROW_TYPES[kind]) for name, kind in schema.arrays.items()}


def arrays(column: pa.Array, kind: AttributeType) -> tuple[pa.ListArray, Faults]:
    """Convert lists, or JSON texts of lists, into lists of a declared type."""
    faults: Faults = {}
    if _is_text(column) and column.null_count < len(column):
        values, faults = _each(column.to_pylist(), _list_in_json, None)
        column = pa.array(values, pa.list_(pa.string()))
    elif element_type(column.type) is None:
        faults = _of_all(column, NO_LIST)
        column = pa.nulls(len(column), pa.list_(ARROW_TYPES[kind]))
    lists = plain_list(column)
    lengths, valid = pc.list_value_length(lists).fill_null(0).to_numpy(), lists.is_valid()
    faults |= long_lists(lengths)
    elements, of_elements = attributes(lists.flatten(), kind)
    faults = of_rows(of_elements, lengths) | faults
    return list_of(elements, lengths, valid.to_numpy(zero_copy_only=False)), faults


def long_lists(lengths: Int64s) -> Faults:
    """Find the lists that have too many elements, by their lengths."""
    reason = f"elements, and at most {MOST_ELEMENTS:,} are read"
    return {int(row): f"has {lengths[row]:,} {reason}" for row in np.flatnonzero(lengths > MOST_ELEMENTS)}


def of_rows(of_elements: Faults, lengths: Int64s) -> Faults:
    """Return the faults of elements by row, given the lengths of the lists: the first fault of each row."""
    ends, faults = np.cumsum(lengths), Faults()
    for at in sorted(of_elements):
        row = int(np.searchsorted(ends, at, "right"))
        number = at - int(ends[row] - lengths[row]) + 1
        faults.setdefault(row, f"element {number:,}: {of_elements[at]}")
    return faults


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _list_in_json(text: str) -> list[str | None]:
    try:
        values = json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
        write_json(values).encode()  # half of a character is not text
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        message = f"""{shown(text)} is not a list in JSON, as in ["A", "B"]"""
        raise ValueError(message)
    return [_element_in_json(number, value) for number, value in enumerate(values, 1)]


def _element_in_json(number: int, value: Any) -> str | None:
    if isinstance(value, list | dict):
        what = "a list" if isinstance(value, list) else "an object"
        message = f"element {number:,}: is {what}, and must be one value"
        raise ValueError(message)
    return ("true" if value else "false") if isinstance(value, bool) else value


@dataclass(frozen=True)
class EventTimes:
    """The times of events."""

    ms: Int64s  # int64, since the epoch, UTC; finer digits are cut off; 0 where there is none
    faults: Faults  # by row, why a value is not a time
    is_counted: bool = False  # whether they were numbers, so that they depend on the declared unit
    is_local: Flags | None = None  # bool, which have no zone; None if all have one
    # bool, which of these occur twice in the declared zone, as in autumn; the first is taken
    is_twice: Flags | None = None
    # bool, which never occur there, as in spring; read as if the clocks had not changed
    is_skipped: Flags | None = None
    # by unit, how many of the absurd ones would be plausible in it
    misfits: Counter[str] = field(default_factory=Counter)

    def counts(self, good: Flags) -> Counter[str]:
        """Count the notable times of some rows, by kind."""
        kinds = {WITHOUT_ZONE: self.is_local, TWICE: self.is_twice, SKIPPED: self.is_skipped}
        counts = {kind: int(np.count_nonzero(good & rows)) for kind, rows in kinds.items() if rows is not None}
        times = int(np.count_nonzero(good))
        counts |= {MISFITS[unit]: count for unit, count in self.misfits.items()}
        return Counter({TIMES: times, COUNTED: times if self.is_counted else 0} | counts)


def times_ms(column: pa.Array, declared: EventTime) -> tuple[Int64s, Faults]:
    """Convert event times into ms since the epoch as `event_times` does, without the further findings."""
    times = event_times(column, declared)
    return times.ms, times.faults


def event_times(column: pa.Array, declared: EventTime) -> EventTimes:
    """Convert event times: dates, timestamps, numbers in the declared unit, or texts.

    A time outside `declared.earliest` to `declared.latest` does not fit.
    """
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        is_local = None if getattr(column.type, "tz", None) else column.is_valid().to_numpy(zero_copy_only=False)
        times = _on_clock(_ticks_ms(column), {}, is_local, declared.zone)
    elif declared.unit == "iso8601":
        texts, unreadable = _as_text(column)
        ms, is_local, faults = read_texts(strings(texts), declared.format)
        for row, fault in faults.items() if declared.format is None else ():
            with contextlib.suppress(ValueError):  # A number where a text is wanted
                faults[row] = fault + unit_hint(_ms_of_number(texts[row].as_py(), "ms"), "iso8601")
        times = _on_clock(ms, faults | unreadable, is_local if is_local.any() else None, declared.zone)
    else:
        times = _counted(column, declared.unit)
    return _within(column, times, declared)


def _ticks_ms(column: pa.Array) -> Int64s:
    if pa.types.is_date(column.type):
        column = pc.cast(column, pa.timestamp("ms"))
    ticks = _integers(pc.cast(column, pa.int64()))
    per_ms = PER_SECOND[column.type.unit] // 1000
    return ticks // per_ms if per_ms else np.clip(ticks, -_MOST_S, _MOST_S) * 1000


def _on_clock(ms: Int64s, faults: Faults, is_local: Flags | None, zone: str | None) -> EventTimes:
    """Return times, with those of a local clock converted from its zone to UTC; without a zone they count as UTC."""
    if is_local is None or zone is None:
        return EventTimes(ms, faults, is_local=is_local)
    instants, twice, skipped = instants_ms(np.where(is_local, ms, 0), zone)
    return EventTimes(np.where(is_local, instants, ms), faults, False, is_local, is_local & twice, is_local & skipped)


def _counted(column: pa.Array, unit: str) -> EventTimes:
    """Return times given as numbers in a unit, or as texts of numbers."""
    if _is_text(column) or pa.types.is_integer(column.type):
        whole, faults = _longs(column)
        times, most = _integers(whole), INT64_MAX * PER_SECOND[unit] // 1000
        if not faults and bool(np.all((times <= most) & (times >= -most))):
            return EventTimes(times * 1000 if unit == "s" else times // (PER_SECOND[unit] // 1000), {}, True)
    values, faults = _converted(column, lambda text: _ms_of_number(text, unit), 0)
    return EventTimes(np.array([min(max(value, INT64_MIN), INT64_MAX) for value in values], np.int64), faults, True)


def _ms_of_number(text: str, unit: str) -> int:
    try:
        number = read_number(text)
    except ValueError as error:
        is_iso = not read_texts(pa.array([text]), None).faults
        hint = "; it is a time in ISO 8601: write `unit: iso8601`" if is_iso else ""
        message = f"{error}{hint}"
        raise ValueError(message) from None
    if whole_digits(number) > _MOST_DIGITS_OF_TIME:
        message = f"{shown(text)} is not a time"
        raise ValueError(message)
    return integer_at(number, _PLACES[unit], ROUND_FLOOR)[0]


def _integers(column: pa.Array) -> Int64s:
    integers: Int64s = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return integers


def _within(column: pa.Array, times: EventTimes, declared: EventTime) -> EventTimes:
    """Return times with a fault for each outside the declared limits, and the unit that would have fitted."""
    absurd = (times.ms < declared.earliest_ms) | (times.ms >= declared.latest_ms)
    if absurd.any():
        rows = np.flatnonzero(absurd & ~column.is_null().to_numpy(zero_copy_only=False))
        written, _ = _as_text(column.take(pa.array(rows)))
        for row, text in zip(rows.tolist(), written.to_pylist(), strict=True):
            given = shown(python_value(column[row]) if text is None else text)
            hint = ""
            if times.is_counted and row not in times.faults:
                time_ms = _ms_of_number(text, declared.unit)
                hint = unit_hint(time_ms, declared.unit)
                times.misfits.update(filter(None, [fitting_unit(time_ms, time_ms, declared.unit)]))
            times.faults.setdefault(row, f"{given} is an absurd time: outside {declared.limits}{hint}")
    return times

"""Times as text, in ISO 8601 or in a format of `strptime` codes, and the units of numeric event times.

Arrow reads a whole column if its result is sure to equal Python's; otherwise each distinct text is parsed once.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s
from buckets.moment import parse_moment_ms, time_text
from buckets.time_zone import local_ms

Faults = dict[int, str]  # By row, why its value does not fit


def moment_text(column: pa.Array) -> tuple[pa.Array, Faults]:
    """Write dates, timestamps or times as text, with a fault for those too far away to be written."""
    if pa.types.is_date(column.type):
        return _without_wild(column, pc.cast(column, pa.string()))
    kind = pa.time64("us") if pa.types.is_time(column.type) else pa.timestamp("us", column.type.tz and "UTC")
    integers = pa.int32() if pa.types.is_time32(column.type) else pa.int64()
    numbers = pc.cast(pc.cast(column, integers), pa.int64())
    units = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    if column.type.unit == "ns":
        whole, finer = np.divmod(units, 1000)
    else:
        factor = PER_SECOND["us"] // PER_SECOND[column.type.unit]
        most = np.iinfo(np.int64).max // factor
        # Only years that are never written are clipped here.
        whole, finer = np.clip(units, -most, most) * factor, np.zeros_like(units)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    text, faults = _without_wild(column, pc.cast(pa.array(whole, mask=missing).cast(kind), pa.string()))
    rows = np.flatnonzero(finer)
    if len(rows):
        values = text.to_pylist()
        for row in rows:
            zone = "Z" if values[row].endswith("Z") else ""
            values[row] = f"{values[row].removesuffix('Z')}{finer[row]:03}{zone}"
        text = pa.array(values, pa.string())
    return text, faults


def _without_wild(column: pa.Array, text: pa.Array) -> tuple[pa.Array, Faults]:
    """Remove the notes that Arrow writes instead of years out of its range."""
    wild = pc.fill_null(pc.starts_with(text, "<"), False)
    if not pc.any(wild).as_py():
        return text, {}
    rows = np.flatnonzero(wild.to_numpy(zero_copy_only=False))
    faults = {int(row): f"a {column.type} that lies outside the years that can be written" for row in rows}
    return pc.if_else(wild, pa.scalar(None, pa.string()), text), faults


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_YEAR_1_US = -62_135_596_800_000_000
_ANY_DAY = datetime(2026, 11, 23, 17, 45, 58, 123456, tzinfo=UTC)
_OF_ARROW = frozenset("YmdHMSyb%")
"""Codes that Arrow parses as Python does, in texts that Arrow would write in the same way."""
_OF_MACHINE = frozenset("ZcxX")  # Codes whose meaning depends on the machine
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_SHOWN = 40


class WrittenTimes(NamedTuple):
    """Parsed times."""

    # in ms since the epoch; of a time without a zone, since 1970-01-01T00:00 of its clock. 0 where there is none.
    ms: Int64s
    is_local: Flags  # which have no zone
    faults: Faults  # by row, why a text is no time


def checked_format(form: str) -> str:
    """Return a format that determines the day, alike on all machines; otherwise raise ValueError with the reason."""
    codes = _codes(form)
    wild = sorted(codes & _OF_MACHINE)
    if wild:
        message = f"%{wild[0]} in {form!r} means something else on other machines; write days, hours and %z"
        raise ValueError(message)
    if ("I" in codes) != ("p" in codes):  # Python ignores PM in %H with %p.
        message = f"%I and %p in {form!r} go together, as in %I:%M %p; hours from 0 to 23 are %H"
        raise ValueError(message)
    try:
        day = datetime.strptime(_ANY_DAY.strftime(form), form).date()  # noqa: DTZ007 - only its day is asked for
    except (ValueError, re.error) as error:
        message = f"{form!r} is not a format ({error}); write it as in %d/%m/%Y %H:%M"
        raise ValueError(message) from None
    if day != _ANY_DAY.date():
        message = f"{form!r} does not say year, month and day; write it as in %d/%m/%Y %H:%M"
        raise ValueError(message)
    return form


def _codes(form: str) -> frozenset[str]:
    return frozenset(part[:1] for part in form.replace("%%", "").split("%")[1:])


def read_texts(texts: pa.StringArray, form: str | None) -> WrittenTimes:
    """Read a column of texts, in ISO 8601 or in a format, and cut off digits finer than milliseconds."""
    fast = _fast_iso(texts) if form is None else _fast_format(texts, form)
    if fast is not None:
        return fast
    coded = texts.dictionary_encode()
    read = _iso if form is None else lambda text: _formatted(text, form)
    ms, is_local, wrong = _each(coded.dictionary.to_pylist(), read)
    codes = coded.indices.fill_null(len(ms)).to_numpy(zero_copy_only=False)
    faults = {int(row): wrong[int(codes[row])] for row in np.flatnonzero(np.isin(codes, list(wrong)))}
    return WrittenTimes(np.append(ms, 0)[codes], np.append(is_local, False)[codes], faults)


def _each(texts: list[str], read: Callable[[str], datetime]) -> WrittenTimes:
    times = WrittenTimes(np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_), {})
    for row, text in enumerate(texts):
        try:
            moment = read(text)
        except ValueError as error:
            times.faults[row] = str(error)
            continue
        times.is_local[row] = moment.tzinfo is None
        times.ms[row] = (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MS
    return times


def shown(value: Any) -> str:
    """Return a value as it appears in messages."""
    whole = str(value) if isinstance(value, date) else repr(value)
    return whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "…"


def _iso(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f"{shown(text)} is not an ISO-8601 time"
        raise ValueError(message) from None


def _formatted(text: str, form: str) -> datetime:
    try:
        if text.isascii() or not _OTHER_DIGIT.search(text):  # Python takes digits of other scripts, too.
            return datetime.strptime(text, form)  # noqa: DTZ007 - whether it has a zone is asked of it
    except ValueError:
        pass
    message = f"{shown(text)} is not a time that is written as {form}"
    raise ValueError(message)


def written(time_ms: int, form: str, zone: str) -> str:
    """Write an instant in a format, on the clock of a zone."""
    clock_ms = int(local_ms(np.array([time_ms], np.int64), zone)[0])
    # With a zone of its own, for %z.
    offset = timezone(timedelta(milliseconds=clock_ms - time_ms))
    return (_EPOCH.replace(tzinfo=offset) + timedelta(milliseconds=clock_ms)).strftime(form)


def _fast_iso(texts: pa.StringArray) -> WrittenTimes | None:
    """Read a column in which all texts have a zone, or none has; None if Python has to parse it."""
    for zone in ("UTC", None):
        try:
            times = pc.cast(texts, pa.timestamp("us", zone))
        except pa.ArrowInvalid:
            continue
        ticks = pc.cast(times, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if bool((ticks < _YEAR_1_US).any()):
            return None  # Arrow reads the year 0, which ISO 8601 has and Python has not.
        return _of_ms(texts, ticks // 1000, zone is None)
    return None


def _fast_format(texts: pa.StringArray, form: str) -> WrittenTimes | None:
    """Read a column of texts that Arrow would write back unchanged: it also accepts 31 February."""
    if form.endswith((".%f", ",%f")):
        return _fast_fractions(texts, form.removesuffix("%f"))
    if not _codes(form) <= _OF_ARROW:
        return None
    try:
        times = pc.strptime(texts, format=form, unit="s")
    except pa.ArrowInvalid:
        return None
    if not pc.all(pc.equal(pc.strftime(times, format=form, locale="C"), texts)).as_py():
        return None
    return _of_ms(texts, pc.cast(times, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) * 1000, True)


def _fast_fractions(texts: pa.StringArray, before: str) -> WrittenTimes | None:
    """Read a column of texts that end with fractions of a second; `before` is the format of the rest."""
    parts = pc.extract_regex(texts, rf"^(?P<before>.*)[{before[-1]}](?P<digits>[0-9]{{1,6}})$")
    if parts.null_count > texts.null_count:
        return None
    times = _fast_format(pc.struct_field(parts, "before"), before[:-1])
    if times is None:
        return None
    micros = pc.cast(pc.utf8_rpad(pc.struct_field(parts, "digits"), 6, "0"), pa.int64()).fill_null(0)
    return times._replace(ms=times.ms + micros.to_numpy(zero_copy_only=False) // 1000)


def _of_ms(texts: pa.StringArray, ms: Int64s, is_local: bool) -> WrittenTimes:
    there = texts.is_valid().to_numpy(zero_copy_only=False)
    return WrittenTimes(ms, there if is_local else np.zeros(len(texts), np.bool_), {})


TimeUnit = Literal["ms", "s", "us", "ns", "iso8601"]
PER_SECOND: Final[dict[str, int]] = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_PLAUSIBLE_MS = parse_moment_ms("1990-01-01"), parse_moment_ms("2100-01-01")
_1971_MS = parse_moment_ms("1971-01-01")


def fitting_unit(low_ms: int, high_ms: int, unit: str) -> str | None:
    """Return the unit in which the numbers would be plausible times; None if no other unit fits.

    `low_ms` and `high_ms` are the least and the greatest time, in ms since the epoch, as read in `unit`.
    """
    first_ms, end_ms = _PLAUSIBLE_MS
    for other, per_second in PER_SECOND.items():
        low_there_ms, high_there_ms = (_in_other(time_ms, unit, per_second) for time_ms in (low_ms, high_ms))
        if other != unit and first_ms <= low_there_ms <= high_there_ms < end_ms:
            return other
    return None


def unit_fault(low_ms: int, high_ms: int, times: int, unit: str) -> str | None:
    """Report that all times, as read in a unit, are in 1970 but plausible in another unit; None if they are right."""
    fitting = fitting_unit(low_ms, high_ms, unit) if 0 <= low_ms <= high_ms < _1971_MS else None
    if fitting is None:
        return None
    begin, end = (time_text(_in_other(time_ms, unit, PER_SECOND[fitting])) for time_ms in (low_ms, high_ms))
    which, there = f"all {times:,} times are", f"they are {begin if begin == end else f'from {begin} to {end}'}"
    if times == 1:
        which, there = "the only time is", f"it is {begin}"
    return (
        f"{which} in 1970 with `unit: {unit}`, and with `unit: {fitting}` {there}; write `unit: {fitting}` in "
        "event_time, or `earliest: 1970-01-01` if they are right"
    )


def unit_hint(time_ms: int, unit: str) -> str:
    """Name the unit in which an absurd time would be plausible; empty if no unit fits.

    A number where ISO 8601 is declared is passed as if it were in ms.
    """
    fitting = fitting_unit(time_ms, time_ms, unit)
    if fitting is None:
        return ""
    return f"; with `unit: {fitting}` it is {time_text(_in_other(time_ms, unit, PER_SECOND[fitting]))}"


def _in_other(time_ms: int, unit: str, per_second: int) -> int:
    """Return a time read in `unit` as it would be with its number in another unit, in ms since the epoch."""
    return time_ms * PER_SECOND.get(unit, 1000) // per_second

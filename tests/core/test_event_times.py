"""Event times as they are written: units, formats, zones, clocks that change; and what is told of them."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from buckets.events.clock_times import fitting_unit, unit_fault
from buckets.events.conversion import event_times, times_ms
from buckets.events.schema import EventSchema, EventTime
from buckets.moment import parse_moment_ms
from tests.core import test_avro as avro
from tests.laws import examples

PER_MS = {"us": 1000, "ns": 1_000_000}
WIDE = {"earliest": "0001-01-02", "latest": "9999-12-30"}
NOON_MS = parse_moment_ms("2026-07-01T12:00Z")
FORMATS = ["%d/%m/%Y %H:%M:%S", "%Y%m%d%H%M%S", "%d.%m.%y %H:%M:%S", "%b %d %Y %H:%M:%S.%f", "%m/%d/%Y %I:%M:%S %p"]


def declared(**settings: object) -> EventTime:
    return EventTime.model_validate({"field": "t"} | settings)


def text(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.mark.parametrize("unit", list(PER_MS))
@settings(max_examples=examples(100))
@given(st.lists(st.integers(-(10**18), 4 * 10**18), min_size=1))
def test_finer_units_are_cut_down_to_the_millisecond(unit, numbers):
    expected = [number // PER_MS[unit] for number in numbers]
    wide = declared(unit=unit, **WIDE)
    assert times_ms(pa.array(numbers), wide)[0].tolist() == expected
    assert times_ms(text(*map(str, numbers)), wide)[0].tolist() == expected
    written = [f"{number // 1000}.{number % 1000:03}" for number in numbers if number >= 0]
    values, faults = times_ms(text(*written), wide)
    assert not faults
    assert values.tolist() == [number // 1000 // PER_MS[unit] for number in numbers if number >= 0]


def test_typed_times_do_not_depend_on_the_unit():
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns", "iso8601"):
        times = event_times(pa.array([moment], pa.timestamp("us", "UTC")), declared(unit=unit))
        assert (times.ms.tolist(), times.is_counted, times.is_local) == ([NOON_MS], False, None)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime(2026, 7, 1, 14)], pa.timestamp("us")),  # noqa: DTZ001 - the zone is that of the schema
        pa.array([datetime(2026, 7, 1, 14)], pa.timestamp("s")),  # noqa: DTZ001
        text("2026-07-01T14:00:00"),
        text("2026-07-01 14:00:00.000999"),
    ],
)
def test_times_without_a_zone_are_in_that_of_the_schema_and_else_in_utc(column):
    berlin = event_times(column, declared(unit="iso8601", zone="Europe/Berlin"))
    utc = event_times(column, declared(unit="iso8601"))
    assert (berlin.ms.tolist(), utc.ms.tolist()) == ([NOON_MS], [NOON_MS + 2 * 3_600_000])
    assert berlin.counts(np.array([True])) == {"times": 1, "without_zone": 1, "twice": 0, "skipped": 0, "counted": 0}


def test_a_day_begins_in_the_zone():
    for column in (pa.array([date(2026, 7, 1)]), text("2026-07-01")):
        berlin = declared(unit="iso8601", zone="Europe/Berlin")
        assert times_ms(column, berlin)[0].tolist() == [parse_moment_ms("2026-06-30T22:00Z")]


def test_texts_with_a_zone_of_their_own_keep_it():
    mixed = text("2026-07-01T14:00:00", "2026-07-01T12:00:00Z", "2026-07-01T07:00:00-05:00", None)
    times = event_times(mixed, declared(unit="iso8601", zone="Europe/Berlin"))
    assert times.ms.tolist() == [NOON_MS, NOON_MS, NOON_MS, 0]
    assert times.is_local.tolist() == [True, False, False, False]
    with_offset = declared(format="%d/%m/%Y %H:%M %z", zone="Europe/Berlin")
    assert times_ms(text("01/07/2026 07:00 -0500"), with_offset)[0].tolist() == [NOON_MS]


def test_clocks_that_change_are_read_as_the_documents_say():
    berlin = declared(format="%d/%m/%Y %H:%M", zone="Europe/Berlin")
    times = event_times(text("25/10/2026 02:30", "29/03/2026 02:30", "25/10/2026 03:00"), berlin)
    expected = ["2026-10-25T00:30Z", "2026-03-29T01:30Z", "2026-10-25T02:00Z"]
    assert times.ms.tolist() == [parse_moment_ms(moment) for moment in expected]
    assert (times.is_twice.tolist(), times.is_skipped.tolist()) == ([True, False, False], [False, True, False])


@settings(max_examples=examples(100))
@given(
    st.sampled_from(FORMATS),
    st.sampled_from([None, "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.lists(st.none() | st.datetimes(datetime(1970, 1, 2), datetime(2068, 12, 31)), min_size=1),  # noqa: DTZ001
)
def test_a_format_is_read_as_python_reads_it(form, zone, moments):
    written = [None if moment is None else moment.strftime(form) for moment in moments]
    values, faults = times_ms(text(*written), declared(format=form, zone=zone))
    assert not faults
    for value, one in zip(values.tolist(), written, strict=True):
        if one is not None:
            read = datetime.strptime(one, form).replace(tzinfo=ZoneInfo(zone or "UTC"))
            assert value == (read - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "odd", ["31/02/2026 10:00", "01/02/2026", "01/02/2026 10:00 ", "٣1/01/2026 10:00", "", "24/13/2026 1:00"]
)
def test_what_is_not_written_so_is_a_dead_letter_and_harms_no_other(odd):
    values, faults = times_ms(text("01/07/2026 12:00", odd, "1/7/2026 12:00"), declared(format="%d/%m/%Y %H:%M"))
    assert values.tolist() == [NOON_MS, 0, NOON_MS]
    assert faults == {1: f"{odd!r} is not a time that is written as %d/%m/%Y %H:%M"}


@pytest.mark.parametrize(
    ("form", "noon"),
    [
        ("%Y年%m月%d日 %H時%M分", "2026年07月01日 12時00分"),
        ("%m/%d/%Y, %I:%M %p", "7/1/2026, 12:00\u202fPM"),
        ("%d.%m.%Y um %H:%M Uhr für", "01.07.2026 um 12:00 Uhr für"),
    ],
)
def test_letters_and_spaces_of_other_scripts_may_be_in_a_format_and_their_digits_may_not(form, noon):
    other = noon.replace("2026", "\uff12\uff10\uff12\uff16")
    values, faults = times_ms(text(noon, other), declared(format=form))
    assert (values.tolist(), list(faults)) == ([NOON_MS, 0], [1])


@pytest.mark.parametrize(
    ("given_settings", "reason"),
    [
        ({"format": "%d/%m"}, "does not say year, month and day"),
        ({"format": "%Y-%m-%d %Z"}, "something else on other machines"),
        ({"format": "%c"}, "something else on other machines"),
        ({"format": "%Q"}, "is not a format"),
        ({"format": "%Y-%m-%d %Y"}, "is not a format"),
        ({"format": "%d/%m/%Y %H:%M %p"}, "go together"),
        ({"format": "%d/%m/%Y %I:%M"}, "go together"),
        ({"format": "%d/%m/%Y", "unit": "ms"}, "leave one of them out"),
        ({"zone": "Europe/Berlim"}, "no time zone 'Europe/Berlim'"),
        ({"zone": "UTC", "broker": "create_time"}, "zone: the time of a broker is in UTC"),
    ],
)
def test_a_schema_says_what_is_wrong_with_a_format_or_a_zone(given_settings, reason):
    with pytest.raises(ValidationError, match=reason):
        declared(**given_settings)


def test_a_format_is_kept_where_a_schema_is_written_and_read_again():
    first = declared(format="%d/%m/%Y", zone="Europe/Berlin")
    again = EventTime.model_validate_json(first.model_dump_json())
    assert (again.format, again.zone, again.unit) == ("%d/%m/%Y", "Europe/Berlin", "iso8601")


SECONDS = 1_763_000_000


@pytest.mark.parametrize("true", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("wrong", ["s", "ms", "us", "ns"])
def test_the_unit_that_fits_is_found_whatever_was_declared(true, wrong):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    number = SECONDS * per_second[true]
    read_ms = number * 1000 // per_second[wrong]
    assert fitting_unit(read_ms, read_ms, wrong) == (None if true == wrong else true)
    times, faults = times_ms(pa.array([number]), declared(unit=wrong))
    if per_second[true] > per_second[wrong]:
        assert f"with `unit: {true}` it is 2025-11-13 02:13:20" in faults[0]
    elif true != wrong:
        assert f"write `unit: {true}`" in unit_fault(int(times[0]), int(times[0]), 1, wrong)


@pytest.mark.parametrize(
    ("low", "high", "unit"),
    [
        (0, 300_000, "ms"),  # a small example
        (-1, SECONDS, "ms"),  # some are before 1970
        (SECONDS, parse_moment_ms("1971-01-01"), "ms"),  # some are after it
        (SECONDS * 1000, SECONDS * 1000, "ms"),
        (0, SECONDS, "ms"),  # in seconds some would be in 1970 too
    ],
)
def test_other_times_are_taken_for_what_they_are(low, high, unit):
    assert unit_fault(low, high, 2, unit) is None


def test_a_hint_that_a_text_is_in_iso_8601_and_a_number_is_not():
    _, faults = times_ms(text("2026-07-01T12:00:00Z"), declared())
    assert faults[0].endswith("it is a time in ISO 8601: write `unit: iso8601`")
    _, faults = times_ms(text(str(SECONDS)), declared(unit="iso8601"))
    assert faults[0].endswith("with `unit: s` it is 2025-11-13 02:13:20")


LOGICAL = {
    "local-timestamp-micros": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamp-micros": {"type": "long", "logicalType": "timestamp-micros"},
}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "iso8601"])
@pytest.mark.parametrize(("logical", "hours"), [("local-timestamp-micros", 1), ("timestamp-micros", 0)])
def test_timestamps_of_avro_are_read_in_any_unit_and_those_without_a_zone_in_that_of_the_schema(unit, logical, hours):
    schema = EventSchema.model_validate(
        avro.EVENTS | {"event_time": {"field": "at", "unit": unit, "zone": "Europe/Berlin"}}
    )
    written = avro.avro(at=LOGICAL[logical])
    found, dead = avro.read(avro.message(written, at=avro.AT_MS * 1000 + 999), s1=written, schema=schema)
    assert (found[0]["at"], dead) == (avro.AT_MS - hours * 3_600_000, {})


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_long_of_one_schema_and_a_timestamp_of_another_are_one_time_in_one_batch(unit):
    schema = EventSchema.model_validate(avro.EVENTS | {"event_time": {"field": "at", "unit": unit}})
    before, now = avro.avro(at="long"), avro.avro(at=LOGICAL["timestamp-micros"])
    factor = 1000 if unit == "us" else 1_000_000
    messages = [avro.message(before, at=avro.AT_MS * factor), avro.message(now, 2, id="e2", at=avro.AT_MS * 1000)]
    found, dead = avro.read(*messages, s1=before, s2=now, schema=schema)
    assert ([event["at"] for event in found], dead) == ([avro.AT_MS] * 2, {})

"""Windows that begin with a day, week or month of a time zone, against loops over dates on its clocks."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.window import Window
from buckets.time_zone import LONGEST_PERIODS_MS, period_starts_ms
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {"event_id": "id", "event_time": "time", "attributes": {"k": "string"}, "measures": {"amount": {"scale": 2}}}
)
PLACES = [
    ("UTC", datetime(2038, 7, 31, 20, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 28, 20, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2045, 10, 28, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 31, 20, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2017, 10, 14, 20, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 29, 20, tzinfo=UTC)),
]
"""Zones shortly before their clocks change: by night, at midnight, or by a day."""
PERIODS = ["day", "week", "month"]
HOUR_MS = 3_600_000


def period_of(time_ms: int, period: str, zone: str) -> date:
    """The day, week or month of a moment, by its first day."""
    day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).astimezone(ZoneInfo(zone)).date()
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def rule(period: str, zone: str, ends: dict[str, str]) -> buckets.Rule:
    window = {"this": period, "zone": zone} | ends
    features = {
        "total": {"function": "sum", "of": "amount", "window": window},
        "events": {"function": "count", "window": window},
        "most": {"function": "max", "of": "amount", "window": window},
        "large": {"function": "count", "window": window, "where": "amount > 5"},
    }
    return buckets.Rule.model_validate({"rule_id": "r", "group_by": ["k"], "features": features, "when": "events >= 0"})


def expected(rows: list[dict], row: dict, period: str, zone: str, ends: dict[str, str]) -> dict:
    """The features at a row, of those that have arrived up to it, in its period and not later than it."""
    own = period_of(row["time"], period, zone)
    inside = [x for x in rows if x["time"] <= row["time"] and period_of(x["time"], period, zone) == own]
    amounts = [x["amount"] for x in inside if not ends or x is not row]
    return {
        "total": str(sum(amounts)) if amounts else None,
        "events": str(len(amounts)),
        "most": str(max(amounts)) if amounts else None,
        "large": str(sum(amount > 5 for amount in amounts)),
    }


STEPS_MS = [0, 1, 999, HOUR_MS // 2, HOUR_MS, 5 * HOUR_MS, 24 * HOUR_MS, 10 * 24 * HOUR_MS]


@settings(max_examples=examples(120))
@given(
    st.sampled_from(PLACES),
    st.sampled_from(PERIODS),
    st.sampled_from([{}, {"exclude": "current"}]),
    st.lists(st.tuples(st.sampled_from(STEPS_MS), st.integers(0, 1_000)), min_size=1, max_size=30),
    st.lists(st.integers(1, 30), max_size=3),
    st.sampled_from(["include", "exclude", "prorate", None]),
)
def test_a_window_holds_what_happened_in_its_period(place, period, ends, steps, cuts, edge):
    zone, start = place
    rows, time_ms = [], round(start.timestamp() * 1000)
    for number, (step_ms, cents) in enumerate(steps):
        time_ms += step_ms
        rows.append({"id": f"e{number}", "time": time_ms, "k": "k", "amount": Decimal(cents).scaleb(-2)})
    precision = {"tail": "all"} if edge is None else {"tail": "2h", "resolution": "50m", "edge": edge}
    engine = buckets.EngineSettings.model_validate({"precision": precision, "allowed_lateness": "0ms"})
    evaluator, begin = buckets.Evaluator([rule(period, zone, ends)], SCHEMA, engine), 0
    kinds = {"time": pa.int64(), "amount": pa.decimal128(10, 2)}
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        batch = pa.table({name: pa.array([row[name] for row in rows[begin:end]], kinds.get(name)) for name in rows[0]})
        results = evaluator.recorded(batch)
        for found in results.evaluations.to_pylist():
            at = begin + found["position"]
            exact = expected(rows[: at + 1], rows[at], period, zone, ends)
            for term in json.loads(found["terms"]):
                true = exact[term["name"]]
                if term["exact"]:
                    assert term["value"] == true
                elif true is None:
                    assert term["may_be_null"]
                else:
                    assert Decimal(term["lower"]) <= Decimal(true) <= Decimal(term["upper"])
                assert edge is not None or term["exact"]
        for alert in results.alerts.to_pylist():
            moment = alert["window_start"].astimezone(ZoneInfo(zone))
            assert moment.date() == period_of(rows[begin + alert["position"]]["time"], period, zone) or not moment.hour
        begin = end


@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("zone", sorted({zone for zone, _ in PLACES}))
def test_periods_begin_where_the_date_changes(period, zone):
    starts_ms = period_starts_ms(period, zone)
    assert (np.diff(starts_ms) > 0).all()
    for start_ms in starts_ms[:: max(len(starts_ms) // 500, 1)].tolist():
        assert period_of(start_ms, period, zone) != period_of(start_ms - 1, period, zone)


@pytest.mark.slow
def test_no_zone_in_use_has_longer_periods_than_windows_allow():
    for zone in ("Antarctica/Troll", "Australia/Lord_Howe", "Africa/Casablanca", "America/Juneau", "Asia/Gaza"):
        for period in PERIODS:
            assert np.diff(period_starts_ms(period, zone)).max() <= LONGEST_PERIODS_MS[period]


@pytest.mark.parametrize(
    "window",
    [
        {"this": "day", "length": "1h"},
        {"this": "day", "offset": "1h"},
        {"this": "day", "left": "open"},
        {"this": "year"},
        {"this": "day", "zone": "Berlin"},
        {"this": "day", "zone": "Pacific/Kwajalein"},
        {"length": "1h", "zone": "UTC"},
        {"length": "1h", "offset": "0ms"},
        {"length": "1h", "offset": "1d", "exclude": "current"},
    ],
)
def test_a_window_that_makes_no_sense_is_refused(window, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Window.model_validate(window)


def test_a_window_is_written_as_it_was():
    for written in (
        {"this": "month", "zone": "Europe/Berlin"},
        {"this": "day", "zone": "UTC", "exclude": "current"},
        {"length": "24h", "left": "closed", "offset": "7d"},
    ):
        window = Window.model_validate(written)
        assert window.model_dump(mode="json", by_alias=True) == written
        assert Window.model_validate(written) == window


def test_a_rule_says_its_windows_in_words():
    assert (
        "total is the sum of amount over this day in Europe/Berlin before the event"
        in rule("day", "Europe/Berlin", {"exclude": "current"}).sentence()
    )

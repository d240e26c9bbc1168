"""Features of what each day, or each few hours, comes to: as loops over lists and dates have them."""

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.feature import Feature
from buckets.rules.revision import revise
from buckets.rules.rule_set import RuleSet
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"k": "string", "flag": "boolean"},
        "measures": {"amount": {"scale": 2}},
    }
)
Row = dict[str, Any]
HOUR_MS = 3_600_000
PLACES = [
    ("UTC", datetime(2038, 7, 31, 20, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 27, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, 20, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2017, 10, 13, 20, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 27, 20, tzinfo=UTC)),
]
"""Zones shortly before their clocks change: by night, at midnight, or by a day."""
NO_DAYS = {("Pacific/Apia", date(2011, 12, 30))}
PERIODS = [("1d", 5), ("2d", 3), ("6h", 7), ("1h", 30)]
EACH = {"count": None, "sum": "amount", "min": "amount", "max": "amount", "avg": "amount"}
OVER = ["avg", "max", "median", "min", "percentile", "stddev", "sum", "variance"]


def rule(every: str, periods: int, zone: str, each: list[str], over: list[str]) -> buckets.Rule:
    length = f"{int(every[:-1]) * periods}{every[-1]}"
    features: dict[str, Any] = {"recent": {"function": "max", "of": "amount", "window": "2h"}}
    for inner in each:
        of = {"function": inner, "every": every} | ({"of": EACH[inner]} if EACH[inner] else {})
        of |= {"zone": zone} if every.endswith("d") else {}
        for outer in over:
            feature = {"function": outer, "of": of, "window": length} | ({"p": 70} if outer == "percentile" else {})
            features[f"{outer}_{inner}"] = feature
            features[f"{outer}_{inner}_flagged"] = feature | {"where": "flag"}
    return buckets.Rule.model_validate(
        {"rule_id": "r", "group_by": ["k"], "features": features, "when": "recent > 0 OR recent IS NULL OR recent <= 0"}
    )


def borders(time_ms: int, every: str, periods: int, zone: str) -> list[int]:
    """When the periods before that of an event begin, and when the last one ends."""
    size = int(every[:-1])
    if every.endswith("h"):
        own = time_ms // (size * HOUR_MS)
        return [(own - back) * size * HOUR_MS for back in range(periods, -1, -1)]
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).astimezone(ZoneInfo(zone))
    day, days = local.date(), [local.date()]
    while len(days) <= size * periods:
        day -= timedelta(days=1)
        days += [] if (zone, day) in NO_DAYS else [day]
    return [begin_ms(each, zone) for each in reversed(days[::size])]


def begin_ms(day: date, zone: str) -> int:
    """The first moment at which clocks show a date: minute by minute around its midnight."""
    clock = ZoneInfo(zone)
    moment = datetime(day.year, day.month, day.day, tzinfo=clock).astimezone(UTC) - timedelta(hours=2)
    while moment.astimezone(clock).date() != day:
        moment += timedelta(minutes=30)
    return round(moment.timestamp() * 1000)


def root(number: Fraction, digits: int) -> Fraction:
    scaled = number * 10 ** (2 * digits)
    return Fraction((math.isqrt(4 * scaled.numerator // scaled.denominator) + 1) // 2, 10**digits)


def half_even(number: Fraction, digits: int) -> Fraction:
    return Fraction(round(number * 10**digits), 10**digits)


def each_value(inner: str, rows: list[Row]) -> Fraction | None:
    amounts = [Fraction(row["amount"]) for row in rows if row["amount"] is not None]
    if inner in ("count", "sum"):
        return Fraction(len(rows)) if inner == "count" else sum(amounts, Fraction(0))
    if not amounts:
        return None
    return half_even(sum(amounts) / len(amounts), 8) if inner == "avg" else {"min": min, "max": max}[inner](amounts)


def variance(values: list[Fraction]) -> Fraction | None:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else None


def over_values(outer: str, values: list[Fraction], scale: int) -> Fraction | None:
    ordered, size = sorted(values), len(values)
    if not size or (outer in ("stddev", "variance") and size < 2):
        return None
    of: dict[str, Callable[[], Fraction | None]] = {
        "avg": lambda: half_even(sum(values) / size, scale + 6),
        "max": lambda: ordered[-1],
        "median": lambda: (ordered[(size - 1) // 2] + ordered[size // 2]) / 2,
        "min": lambda: ordered[0],
        "percentile": lambda: ordered[max(math.ceil(Fraction(70, 100) * size), 1) - 1],
        "stddev": lambda: root(variance(values) or Fraction(0), scale + 6),
        "sum": lambda: sum(values, Fraction(0)),
        "variance": lambda: half_even(variance(values) or Fraction(0), 2 * scale + 6),
    }
    return of[outer]()


def expected(arrived: list[Row], row: Row, every: str, periods: int, zone: str) -> Iterator[tuple[str, Any]]:
    """The features at a row, of the rows of its key that have arrived."""
    at = borders(row["time"], every, periods, zone)
    inside = [x for x in arrived if at[0] <= x["time"] < at[-1]]
    first_ms = min((x["time"] for x in inside), default=at[-1])
    for flagged in (False, True):
        days = [
            [x for x in inside if begin <= x["time"] < end and (x["flag"] or not flagged)]
            for begin, end in pairwise(at)
            if end > first_ms
        ]
        for inner in EACH:
            values = [value for value in (each_value(inner, day) for day in days) if value is not None]
            scale = {"count": 0, "avg": 8}.get(inner, 2)
            for outer in OVER:
                yield f"{outer}_{inner}{'_flagged' * flagged}", over_values(outer, values, scale)


def events(rows: list[Row]) -> pa.Table:
    kinds = {"time": pa.int64(), "amount": pa.decimal128(12, 2), "flag": pa.bool_()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]})


AMOUNTS = st.sampled_from([*map(Decimal, ("1.00", "2.50", "-4.01", "7.77", "9999999999.99")), None])
STEPS_MS = [0, 1, HOUR_MS // 2, HOUR_MS, 3 * HOUR_MS, 9 * HOUR_MS, 24 * HOUR_MS, 60 * HOUR_MS, -1, -HOUR_MS // 2]
STEPS = st.tuples(st.sampled_from(STEPS_MS), st.sampled_from("aab"), AMOUNTS, st.booleans())
TAILS = [{"tail": "all"}, {"tail": "3h", "resolution": "1h"}, {"tail": "1d", "resolution": "10m"}]


@settings(max_examples=examples(400))
@given(
    st.sampled_from(PLACES),
    st.sampled_from(PERIODS),
    st.lists(STEPS, min_size=5, max_size=60),
    st.lists(st.integers(1, 60), max_size=5),
    st.sampled_from([*TAILS, {"tail": "3h", "resolution": "20m", "tiers": [{"after": "2d", "resolution": "1h"}]}]),
    st.sampled_from(["add", "evaluate"]),
    st.sampled_from(["keep", "keep_first", "replace"]),
)  # fmt: skip
def test_values_of_periods_are_those_of_a_loop(place, period, steps, cuts, precision, late, collision):
    zone, start = place
    every, periods = period
    rows, clock_ms = list[Row](), round(start.timestamp() * 1000)
    for number, (step_ms, key, amount, flag) in enumerate(steps):
        rows.append({"id": f"e{number}", "time": clock_ms + step_ms, "k": key, "amount": amount, "flag": flag})
        clock_ms = max(clock_ms, clock_ms + step_ms)
    policies = {"late": late, "allowed_lateness": "2h", "collision": collision, "precision": precision}
    evaluator = buckets.Evaluator(
        [rule(every, periods, zone, [*EACH], OVER)], SCHEMA, buckets.EngineSettings.model_validate(policies)
    )
    begin, kept = 0, list[Row]()
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        results = evaluator.recorded(events(rows[begin:end]))
        found = {begin + each["position"]: each for each in results.evaluations.to_pylist()}
        for at in range(begin, end):
            take(kept, rows[at], collision)
            if at not in found:
                continue
            own = [x for x in kept if x["k"] == rows[at]["k"]]
            right = dict(expected(own, rows[at], every, periods, zone))
            for term in json.loads(found[at]["terms"]):
                if term["name"] in right:
                    value = None if term["value"] is None else Fraction(term["value"])
                    assert value == right[term["name"]], (term, rows[at], borders(rows[at]["time"], *period, zone))
                    assert term["exact"]
        begin = end


def take(kept: list[Row], row: Row, collision: str) -> None:
    """Take a row in, as the policy for two at one time says."""
    shares = [x for x in kept if (x["k"], x["time"]) == (row["k"], row["time"])]
    if shares and collision == "replace":
        kept[kept.index(shares[0])] = row
    elif not shares or collision == "keep":
        kept.append(row)

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

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.feature import Feature
from buckets.rules.renaming import renamed_rule
from tests.core.longer_tail import behind_a_longer_tail
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


def stream(random: np.random.Generator, size: int, step_ms: int, key: str = "a") -> list[Row]:
    rows, clock_ms = list[Row](), round(PLACES[1][1].timestamp() * 1000)
    for number in range(size):
        clock_ms += int(random.integers(0, step_ms))
        late_ms = int(random.integers(0, 5 * HOUR_MS)) if random.random() < 0.05 else 0
        amount = Decimal(int(random.integers(-300, 900))).scaleb(-2) if random.random() < 0.9 else None
        row = {"id": f"e{number}", "time": clock_ms - late_ms, "k": key, "amount": amount}
        rows.append(row | {"flag": bool(random.random() < 0.5)})
    return rows


@pytest.mark.parametrize("precision", [{"tail": "all"}, {"tail": "5h", "resolution": "1h"}])
@pytest.mark.parametrize("batch", [40, 900])
def test_periods_that_lie_in_pages_are_read_where_they_end(precision, batch):
    every, periods, zone = "1d", 4, "Europe/Berlin"
    rows = stream(np.random.default_rng(batch), 900, HOUR_MS // 4)
    policies = {"late": "evaluate", "allowed_lateness": "5h", "precision": precision}
    tested = rule(every, periods, zone, [*EACH], ["avg", "max"])
    evaluator = buckets.Evaluator([tested], SCHEMA, buckets.EngineSettings.model_validate(policies))
    for begin in range(0, len(rows), batch):
        found = evaluator.recorded(events(rows[begin : begin + batch])).evaluations.to_pylist()
        assert len(found) == len(rows[begin : begin + batch])
        for each in found[::9]:
            at = begin + each["position"]
            right = dict(expected(rows[: at + 1], rows[at], every, periods, zone))
            for term in json.loads(each["terms"]):
                if term["name"] in right:
                    value = None if term["value"] is None else Fraction(term["value"])
                    assert value == right[term["name"]], (term, rows[at])
                    assert term["exact"]


@pytest.mark.parametrize("resolution", ["1h", "50h"])
@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
def test_where_buckets_hold_events_of_two_days_values_lie_within_their_bounds(edge, resolution):
    """The days of Kathmandu begin at a quarter past an hour; buckets of hours were made before that was asked for."""
    every, periods, zone = "1d", 4, "Asia/Kathmandu"
    rows = stream(np.random.default_rng(3), 300, HOUR_MS if resolution == "1h" else 3 * HOUR_MS)
    right = {
        row["id"]: dict(expected(rows[: at + 1], row, every, periods, zone)) for at, row in enumerate(rows) if at >= 150
    }
    exact = uncertain = 0
    for term in behind_a_longer_tail(
        rule(every, periods, zone, [*EACH], OVER), SCHEMA, events(rows), 150, {"resolution": resolution, "edge": edge}
    ):
        if term["name"] == "recent":
            continue
        true = right[term["event_id"]][term["name"]]
        value = None if term["value"] is None else Fraction(term["value"])
        exact, uncertain = exact + term["exact"], uncertain + (not term["exact"])
        if term["exact"]:
            assert value == true, term
        elif true is None:
            assert term["may_be_null"], term
        else:
            assert Fraction(term["lower"]) <= true <= Fraction(term["upper"]), (term, true)
            assert value is None or Fraction(term["lower"]) <= value <= Fraction(term["upper"]), term
    assert exact > 100
    assert uncertain > 100


DUCKDB = """
WITH of_days AS (SELECT *, time // 86_400_000 AS day FROM table_of_events),
     pairs AS (SELECT own.id, unnest(range(own.day - 5, own.day)) AS day, own.k, own.n FROM of_days own),
     sums AS (SELECT pairs.id, pairs.day, count(other.id) AS events, coalesce(sum(other.amount), 0) AS total
              FROM pairs LEFT JOIN of_days other ON other.k = pairs.k AND other.day = pairs.day AND other.n <= pairs.n
              GROUP BY ALL),
     counting AS (SELECT id, min(day) AS first FROM sums WHERE events > 0 GROUP BY id)
SELECT id, round(avg(events), 6), round(stddev_samp(events), 6), max(total), round(avg(total), 6)
FROM sums JOIN counting USING (id) WHERE day >= first GROUP BY id
"""


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32), st.lists(st.integers(1, 80), max_size=3))
def test_duckdb_says_the_same(seed, cuts):
    rows = stream(np.random.default_rng(seed), 80, 9 * HOUR_MS)
    rows = [row | {"n": n, "k": "ab"[seed % (n + 2) % 2], "amount": row["amount"] or 0} for n, row in enumerate(rows)]
    tested = rule("1d", 5, "UTC", ["count", "sum"], ["avg", "stddev", "max"])
    engine = buckets.EngineSettings.model_validate({"late": "evaluate", "allowed_lateness": "5h"})
    evaluator, found = buckets.Evaluator([tested], SCHEMA, engine), {}
    for begin, end in pairwise(sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})):
        for each in evaluator.recorded(events(rows[begin:end]).drop(["n"])).evaluations.to_pylist():
            terms = {term["name"]: term["value"] for term in json.loads(each["terms"])}
            found[each["event_id"]] = [terms[name] for name in ("avg_count", "stddev_count", "max_sum", "avg_sum")]
    table_of_events = events(rows)
    with duckdb.connect() as database:
        database.register("table_of_events", table_of_events)
        of_duckdb = {name: values for name, *values in database.execute(DUCKDB).fetchall()}
    for name, values in found.items():
        right = of_duckdb.get(name, [None] * 4)
        for value, other in zip(values, right, strict=True):
            if value is None or other is None:
                assert value is None
                assert other is None
            else:
                assert abs(float(value) - float(other)) < 1e-5


def test_days_that_may_lie_before_the_first_event_may_count():
    """A bucket holds an event before the window and one on its second day; so its first day may count, or not."""
    bucket_ms = 180_000_000 * 9_610
    assert bucket_ms % (24 * HOUR_MS) == 20 * HOUR_MS
    hours = [1, 30, 56, *np.linspace(57, 99, 30).tolist(), 100]
    rows = [
        {"id": f"e{at}", "time": bucket_ms + round(hour * HOUR_MS), "k": "a", "amount": Decimal(1), "flag": True}
        for at, hour in enumerate(hours)
    ]
    right = dict(expected(rows, rows[-1], "1d", 4, "UTC"))
    assert right["avg_count"] == half_even(Fraction(32, 3), 6)
    found = behind_a_longer_tail(
        rule("1d", 4, "UTC", ["count", "sum"], ["avg", "min"]), SCHEMA, events(rows), 3, {"resolution": "50h"}
    )
    for term in found:
        if term["event_id"] == rows[-1]["id"] and term["name"] != "recent":
            assert not term["exact"]
            assert Fraction(term["lower"]) <= right[term["name"]] <= Fraction(term["upper"]), term


def test_buckets_that_hold_events_of_two_days_are_refused(as_worded):
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "1d", "resolution": "1h"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule("1d", 4, "Asia/Kathmandu", ["count"], ["avg"])], SCHEMA, engine)
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator(
            [rule("1h", 30, "UTC", ["count"], ["avg"])],
            SCHEMA,
            engine.model_copy(update={"precision": engine.precision.model_copy(update={"resolution": 7_000})}),
        )
    buckets.Evaluator([rule("1d", 4, "Europe/Berlin", ["count"], ["avg"])], SCHEMA, engine)


COUNTS = {"function": "count", "every": "1d", "zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    "feature",
    [
        {"of": COUNTS | {"zone": "Berlin"}},
        {"of": COUNTS | {"of": "amount"}},
        {"of": COUNTS | {"function": "sum"}},
        {"of": COUNTS | {"function": "median", "of": "amount"}},
        {"of": COUNTS | {"every": "12h"}},
        {"of": COUNTS | {"every": "0d"}},
        {"of": COUNTS | {"evry": "1d"}},
        {"of": {"function": "count"}},
        {"of": COUNTS | {"where": "amount > 5"}},
        {"of": COUNTS, "window": "36h"},
        {"of": {"function": "count", "every": "1m"}, "window": "30d"},
        {"of": COUNTS, "window": {"length": "30d", "exclude": "current"}},
        {"of": COUNTS, "window": {"length": "30d", "left": "open"}},
        {"of": COUNTS, "window": {"this": "month"}},
        {"of": COUNTS, "function": "mode"},
        {"of": COUNTS, "function": "count"},
        {"of": COUNTS, "function": "percentile"},
        {"of": COUNTS, "where": "amount > this.amount"},
    ],
)
def test_a_feature_of_periods_that_makes_no_sense_is_refused(feature, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Feature.model_validate({"function": "avg", "window": "30d"} | feature)


def test_a_feature_of_periods_is_written_as_it_was_and_said_in_words():
    feature = {"function": "avg", "of": COUNTS, "window": {"length": "30d", "left": "closed"}}
    read = Feature.model_validate(feature | {"window": "30d"})
    assert read.model_dump(mode="json", by_alias=True) == feature
    assert Feature.model_validate(read.model_dump(by_alias=True)) == read
    hours = rule("6h", 4, "UTC", ["sum"], ["stddev"])
    assert buckets.Rule.model_validate(hours.model_dump(mode="json", by_alias=True)) == hours
    written = {"rule_id": "r", "group_by": ["k"], "features": {"usual": feature}, "when": "usual > 5"}
    assert buckets.Rule.model_validate(written).sentence() == (
        "For events of the same k: usual is above 5; usual is the average over days in Europe/Berlin of the number of "
        "events over the 30d before this day in Europe/Berlin"
    )
    assert hours.sentence().endswith(
        "stddev_sum_flagged is the standard deviation over periods of 6h of the sum of amount where flag = TRUE over "
        "the 24h before this period of 6h"
    )


def test_a_field_of_each_day_is_renamed_with_the_others():
    sums = rule("1d", 4, "UTC", ["sum", "count"], ["avg"])
    renamed = renamed_rule(sums, {"amount": "value"})
    assert renamed.features["avg_sum"].of == "value"
    assert renamed.features["avg_count"] == sums.features["avg_count"]
    assert renamed_rule(renamed, {"value": "amount"}).features == sums.features


def test_alerts_are_counted_by_the_day():
    first = {
        "rule_id": "a",
        "group_by": ["k"],
        "features": {"n": {"function": "count", "window": "1ms"}},
        "when": "n > 0",
    }
    usual = {"function": "avg", "of": {"function": "count", "every": "1d"}, "window": "4d"}
    of_alerts = {"rule_id": "b", "on": "alerts", "group_by": ["k"], "features": {"usual": usual}, "when": "usual > 1.4"}
    hours = [1, 2, 25, 50]
    rows = [{"id": f"e{at}", "time": at * HOUR_MS, "k": "a", "amount": Decimal(1), "flag": True} for at in hours]
    found = buckets.evaluate(events(rows), [buckets.Rule.model_validate(each) for each in (first, of_alerts)], SCHEMA)
    alerts = {(row["rule_id"], row["event_id"]) for row in found.alerts.to_pylist()}
    assert {each for each in alerts if each[0] == "b"} == {("b", "e25"), ("b", "e50")}

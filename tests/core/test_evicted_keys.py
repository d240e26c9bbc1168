"""Eviction never changes a result in silence: what says `warm: true` is what it would be if nothing were ever evicted.

Streams here are what users can send: keys whose clocks are years apart, wild dates, slow sources beside fast ones, any
cut into micro-batches, any number of shards. The reference is the same engine, an event at a time, without eviction.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.engine.batch import shard_events
from buckets.engine.eviction import eviction, shard_clock
from buckets.engine.stages import shard
from buckets.kernel import keyed_events, score
from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set, next_rule_set
from buckets.timeline.tiers import Paging
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline
from tests.laws import examples

SMALL = Paging(page_cells=3, hot_cells=2, most_pages=64)
LATENESS_MS = 10
RULES = [
    rule("sum", length="40ms"),
    rule("count", None, length="15ms", where={"kind": "a"}),
    rule("largest", "fee", length="80ms", aggregate={"function": "max", "measure": "fee"}),
]
YEARS_MS = 10**11
HOUR_MS = 3_600_000
ORIGIN = ("source_order", "source", "position")
SIDES = (columns.LATE_EVENTS, columns.COLLISIONS, columns.DUPLICATES)


def row(number: int, payer: str, at: int, kind: str = "a", **changes) -> dict:
    fields = {"id": f"e{number}", "at": at, "payer": payer, "kind": kind, "account": 1, "vip": "true"}
    return fields | {"amount": "1.00", "fee": number % 7, "position": number} | changes


def run(rows, cuts=None, shards: int = 1, evaluations: bool = True, **engine) -> Pipeline:
    """The rows cut at some indexes; one by one where none are given."""
    one = Pipeline(
        first_rule_set(engine.pop("rules", RULES)),
        SCHEMA,
        shards=shards,
        **{"allowed_lateness": f"{LATENESS_MS}ms"} | engine,
    )
    one.scorer = replace(one.scorer, evaluations=evaluations)
    cuts = range(len(rows)) if cuts is None else cuts
    ends = sorted({min(index, len(rows)) for index in cuts} | {0, len(rows)})
    for start, end in pairwise(ends):
        one.batch([rows[start:end]])
    return one


def without_eviction(rows, **engine) -> Pipeline:
    with mock.patch.object(shard_clock, "QUORUM", 10**9):
        return run(rows, **engine)


def said(pipeline: Pipeline) -> dict[tuple, dict]:
    """Everything that was said of an event in a group or by a rule, but under what rule set and on what evidence."""
    found = {}
    for output in (columns.EVALUATIONS, *SIDES):
        for each in pipeline.output(output):
            what = (output, each["position"], each.get("rule_id") or each["group"])
            assert what not in found
            found[what] = each
    return found


def check(evicted: Pipeline, reference: Pipeline) -> int:
    """Check that what is warm is the same, and nothing is missing; returns how many are not warm."""
    mine, expected = said(evicted), said(reference)
    assert all(each["warm"] for each in expected.values())
    warm = {what: each for what, each in mine.items() if each["warm"]}
    assert {what: expected.get(what) for what in warm} == warm
    cold = {what[1:] for what in mine.keys() - warm.keys()}
    cold_events = {position for position, _ in cold}
    for what in expected.keys() - mine.keys():
        assert what[1] in cold_events, what
    return len(mine) - len(warm)


STEPS_MS = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9, 12, 40, 55, 100, 300, -1, -4, -10, -60, -200])
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 9),
        STEPS_MS,
        st.sampled_from(["a", "a", "b", "p1"]),
        st.sampled_from([*[0] * 24, YEARS_MS, -YEARS_MS]),
        st.sampled_from([*[0] * 14, 1, 2]),
    ),
    max_size=80,
)
LAGS_MS = st.lists(st.sampled_from([0, 0, 0, 30, 100, 400, 10_000]), min_size=10, max_size=10)
CUTS = st.one_of(st.none(), st.lists(st.integers(0, 80), max_size=12))
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])


def stream(events, lags_ms) -> list[dict]:
    """Events of ten keys, each of which lags behind the others by as much as its source does; some come twice."""
    clock_ms, rows = 0, []
    for key, step_ms, kind, wild_ms, back in events:
        number = len(rows) + 1
        if back and len(rows) >= back:
            rows.append(rows[-back] | {"position": number})
            continue
        clock_ms += step_ms
        rows.append(row(number, f"p{key}", clock_ms - lags_ms[key] + wild_ms, kind))
    return rows


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(EVENTS, LAGS_MS, CUTS, st.sampled_from([1, 1, 2, 5]), LATE, COLLISION)
def test_whatever_is_warm_is_what_it_would_be_without_eviction_however_the_stream_is_cut(
    events, lags_ms, cuts, shards, late, collision
):
    rows = stream(events, lags_ms)
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        evicted = run(rows, cuts, shards, late=late, collision=collision)
    check(evicted, without_eviction(rows, late=late, collision=collision))


ROLE = Rule.model_validate(
    {
        "rule_id": "role",
        "group_by": ["payer"],
        "features": {
            "mine": {"function": "count", "window": "40ms"},
            "other": {"function": "sum", "of": "fee", "window": "50ms", "group_by": ["kind AS payer"]},
        },
        "when": "mine + coalesce(other, 0) > 6",
    }
)


@settings(max_examples=examples(150))
@given(EVENTS, LAGS_MS, CUTS, st.sampled_from([1, 1, 2, 5]), LATE)
def test_what_is_warm_of_another_role_is_what_it_would_be_without_eviction(events, lags_ms, cuts, shards, late):
    rows = [each | {"kind": {"a": "p0", "b": "p2"}.get(each["kind"], "p1")} for each in stream(events, lags_ms)]
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        evicted = run(rows, cuts, shards, late=late, rules=[ROLE]).output(columns.EVALUATIONS)
    whole = {
        each["position"]: each for each in without_eviction(rows, late=late, rules=[ROLE]).output(columns.EVALUATIONS)
    }
    warm = [each for each in evicted if each["warm"]]
    assert warm == [whole[each["position"]] for each in warm]
    assert all(each["warm"] for each in whole.values())


REMEMBERED = [
    *RULES,
    ROLE,
    rule("cooled", length="30ms", limit={"operator": ">", "value": "2"}, cooldown="20ms"),
    rule("reset", group_by=["kind"], length="60ms", limit={"operator": ">", "value": "3"}, reset_on_alert=True),
    rule("some", group_by=["payer", "kind"], length="60ms", limit={"operator": ">", "value": "1"}, rollout="50%"),
]


@settings(max_examples=examples(150), deadline=None)
@given(EVENTS, LAGS_MS, CUTS, st.sampled_from([2, 3, 5]), LATE, COLLISION, st.data())
def test_shards_that_are_scored_in_one_call_come_to_what_each_comes_to_by_itself(
    events, lags_ms, cuts, shards, late, collision, data
):
    has_roles, evaluations = data.draw(st.booleans()), data.draw(st.booleans())
    most_rows = data.draw(st.sampled_from([4, keyed_events.MOST_ROWS]))
    rows, jobs = stream(events, lags_ms), []
    rules = [each for each in REMEMBERED if has_roles or each is not ROLE]
    for most_together in (shard_events.MOST_TOGETHER, 0):
        with (
            mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2),
            mock.patch.object(shard_events, "MOST_TOGETHER", most_together),
            mock.patch.object(keyed_events, "MOST_ROWS", most_rows),
            mock.patch.object(shard, "score_all", partial(score.score_all, paging=SMALL)),
            mock.patch.object(eviction, "score_all", partial(score.score_all, paging=SMALL)),
        ):
            jobs.append(run(rows, cuts, shards, evaluations, late=late, collision=collision, rules=rules))
    found, expected = ({name: sorted(map(repr, job.output(name))) for name in job.found} for job in jobs)
    assert found == expected
    assert jobs[0].accounts == jobs[1].accounts
    found, expected = (
        {(at, name): vars(store)[name].data for at, store in job.stores.items() for name in vars(store)} for job in jobs
    )
    assert found == expected


@settings(max_examples=examples(60))
@given(EVENTS, CUTS, st.sampled_from([1, 3]))
def test_events_within_the_allowed_lateness_of_their_shard_are_all_warm(events, cuts, shards):
    """However many keys are evicted: an event that is not behind the others misses nothing."""
    clock_ms, rows = 0, []
    for key, step_ms, kind, _, _ in events:
        at = clock_ms + max(step_ms, -LATENESS_MS)
        clock_ms = max(clock_ms, at)
        rows.append(row(len(rows) + 1, f"p{key}", at, kind))
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        evicted = run(rows, cuts, shards)
    assert check(evicted, without_eviction(rows)) == 0


def test_one_event_dated_years_ahead_costs_other_keys_nothing():
    rows = [row(number, f"p{number % 20}", 100 * number, amount="10.00") for number in range(1, 400)]
    sums = rule("day", length="1d")
    usual = run(rows, range(0, 400, 7), rules=[sums], shards=2)
    wild = {"id": "wild", "payer": "p3", "position": 0, "at": 10**13}
    with_wild = run([*rows[:200], rows[200] | wild, *rows[200:]], range(0, 400, 7), rules=[sums], shards=2)
    expected = {what: each for what, each in said(usual).items() if '"p3"' not in each["key"]}
    found = {what: each for what, each in said(with_wild).items() if '"p3"' not in each["key"]}
    assert found == expected
    assert all(each["warm"] for each in found.values())


@pytest.mark.parametrize("rows_a_batch", [1, 2, 5, 100])
def test_a_source_that_lags_by_hours_keeps_its_windows_however_the_stream_is_cut(rows_a_batch):
    """Keys of two sources in turn, three hours apart; lateness one hour, windows of five minutes."""
    rows = []
    for number in range(1, 101):
        lags = number % 2
        at = (7 if lags else 10) * HOUR_MS + number * 1_000
        rows.append(row(number, f"{'slow' if lags else 'fast'}{number % 20}", at))
    five = [rule("five", None, length="5m")]
    found = run(rows, range(0, 100, rows_a_batch), rules=five, allowed_lateness="1h")
    assert check(found, without_eviction(rows, rules=five, allowed_lateness="1h")) == 0
    assert [each["count"] for each in found.output(columns.EVALUATIONS)] == [1 + n // 20 for n in range(100)]


def crowd(first: int, at: int) -> list[dict]:
    return [row(first + number, f"crowd{number}", at) for number in range(shard_clock.VOTERS)]


def test_a_key_that_comes_back_behind_its_shards_clock_says_that_something_may_be_missing():
    rows = [row(1, "back", 20), *crowd(2, 1_000), *crowd(100, 2_000), row(200, "back", 25), row(201, "back", 2_000)]
    cuts = [1, 64, 127, 128]
    found = run(rows, cuts)
    back = [each for each in found.output(columns.EVALUATIONS) if "back" in each["key"] and each["rule_id"] == "sum"]
    counts = [(each["event_time"], each["count"], each["warm"]) for each in back]
    assert counts == [(20, 1, True), (25, 1, False), (2_000, 1, True)]
    (missed,) = [each for each in without_eviction(rows).output(columns.EVALUATIONS) if each["position"] == 200][:1]
    assert missed["count"] == 2
    late = run([*rows[:-1], row(201, "back", 18), row(202, "back", 25), row(200, "back", 25)], cuts)
    for output in SIDES:
        sides = [(each["event_time"], each["warm"]) for each in late.output(output) if "back" in each["key"]]
        assert sides == [(18, False)] * 2 if output == columns.LATE_EVENTS else [(25, True)] * 2


def test_what_may_be_missing_is_remembered_until_no_window_reaches_it():
    rows = [row(1, "back", 50), *crowd(2, 1_000), *crowd(100, 2_000)]
    later = [row(200 + number, "back", 55 + 10 * number) for number in range(12)]
    found = run([*rows, *later], [1, 64, 127, *range(128, 140)], rules=[rule("sum", length="40ms")])
    warm = [each["warm"] for each in found.output(columns.EVALUATIONS) if each["position"] >= 200]
    assert warm == [edge_ms > 50 for edge_ms in range(15, 135, 10)]


def test_a_rule_that_comes_after_a_wild_date_is_warm_as_soon_as_without_it():
    rules = [rule("day", length="1d")]
    both = [*rules, rule("brief", "fee", length="50ms")]
    before = [row(number, f"p{number % 5}", number) for number in range(1, 100)]
    wild = row(100, "p9", YEARS_MS)
    after = [row(200 + number, f"p{number % 5}", 100 + number) for number in range(100)]
    again = row(400, "p9", YEARS_MS + 20)
    one = Pipeline(first_rule_set(rules), SCHEMA, shards=2, allowed_lateness="10ms")
    one.batch([[*before, wild]])
    one.rule_set = next_rule_set(one.rule_set, both, one.accounts[0].arrived, LATENESS_MS)
    one.batch([[*after, again]])
    rows = [each for each in one.output(columns.EVALUATIONS) if each["rule_id"] == "brief"]
    assert [each["warm"] for each in rows] == [*(100 + number - 50 > 99 for number in range(100)), False]


@pytest.mark.slow
def test_another_source_that_begins_hours_ahead_costs_the_keys_of_the_first_nothing():
    five, rows = [rule("five", None, length="5m")], []

    def slow(second: int) -> None:
        for key in range(20):
            rows.append(row(len(rows) + 1, f"slow{key}", 7 * HOUR_MS + 1_000 * second))

    for second in range(10):
        slow(second)
    rows += [row(201 + key, f"fast{key}", 10 * HOUR_MS) for key in range(70)]
    for second in range(10, 40):
        slow(second)
        rows.append(row(len(rows) + 1, f"fast{second}", 10 * HOUR_MS + 60_000 * second))
    found = run(rows, [*range(0, 200, 20), 270, *range(270, len(rows), 7)], rules=five, allowed_lateness="1h")
    assert check(found, without_eviction(rows, rules=five, allowed_lateness="1h")) == 0

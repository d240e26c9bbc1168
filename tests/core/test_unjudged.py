"""Events that are not judged: they fill timelines exactly as others do, and nothing else comes of them."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.archive.arrived_rows import arrivals_of
from buckets.events.arrivals import JUDGED
from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.archived_job import archived
from tests.core.examples import SCHEMA as PAYMENTS
from tests.core.examples import rule
from tests.core.pipeline import Pipeline, arrivals
from tests.core.test_shard import cut as cut_rows
from tests.core.test_shard import row_of
from tests.core.test_windows import COLLISION, LATE, LATENESS
from tests.engine import Engine, cut
from tests.laws import examples
from tests.oracle import Oracle
from tests.strategies import MEASURES, SCHEMA, cuts, pagings, rules, streams

SIDE_OUTPUTS = (columns.LATE_EVENTS, columns.DUPLICATES, columns.COLLISIONS)
MIXED = [
    {
        "rule_id": "several",
        "group_by": ["k"],
        "features": {
            "different": {"function": "count_distinct", "of": "fee", "window": "50ms"},
            "median": {"function": "median", "of": "fee", "window": "20ms"},
            "before": {"function": "previous", "of": "fee", "window": "50ms"},
            "everybody": {"function": "count", "window": "30ms", "group_by": []},
        },
        "when": "different >= 1 OR everybody >= 2 OR median > before",
    },
    {
        "rule_id": "sum",
        "group_by": ["k"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "40ms"},
        "limit": {"operator": ">", "value": "0"},
    },
]
"""Features of single events, ranks and several groups, beside a sum."""


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(rules(resets=True), streams(), LATENESS, LATE, COLLISION, pagings(), cuts(), st.integers(0, 2**20))
def test_they_fill_timelines_as_a_loop_over_a_list_says_and_start_no_rule_again(
    rules, events, lateness_ms, late, collision, paging, positions, chosen
):
    def judged(event) -> bool:
        return bool(chosen >> (hash_of(event) % 20) & 1)

    settings = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    engine, every = Engine(rules, paging, **settings), Engine(rules, paging, **settings)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    found = [each for batch in cut(events, positions) if batch for each in engine.batch(batch, judged=judged)]
    assert found == [oracle.arrive(event, judged=judged(event)) for event in events]
    if not any(rule.reset_on_alert for rule in rules):
        every.run([events])
        assert engine.state() == every.state(), "timelines are what they would be"


def hash_of(event) -> int:
    return sum(map(ord, event.event_id)) + event.time_ms


@settings(max_examples=examples(60), deadline=None)
@given(streams(overflowing=False, max_size=60), LATE, cuts(), st.integers(1, 5), st.booleans(), st.data())
def test_however_the_stream_is_cut_judged_ones_have_the_features_that_they_would_have(
    events, late, where, shards, backwards, data
):
    flags = data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    rows = [row_of(event, position) for position, event in enumerate(events, 1)]
    marked = [row | {JUDGED: flag} for row, flag in zip(rows, flags, strict=True)]
    settings = {"allowed_lateness": "100ms", "late": late}
    every = Pipeline(first_rule_set([*map(Rule.model_validate, MIXED)]), SCHEMA, shards=1, **settings)
    every.batch([rows])
    some = Pipeline(first_rule_set([*map(Rule.model_validate, MIXED)]), SCHEMA, shards=shards, **settings)
    for batch in cut_rows(marked, where):
        some.batch([batch[: len(batch) // 2], batch[len(batch) // 2 :]], backwards)
    for output in (columns.EVALUATIONS, columns.ALERTS):
        expected = [row for row in every.output(output) if flags[row["position"] - 1]]
        assert sorted(map(shown, some.output(output))) == sorted(map(shown, expected))
    for output in SIDE_OUTPUTS:
        assert sorted(map(shown, some.output(output))) == sorted(map(shown, every.output(output)))
    counts = [
        sum(getattr(group, name) for account in pipeline.accounts for group in account.groups)
        for pipeline, name in ((every, "evaluated"), (some, "evaluated"), (some, "unjudged"))
    ]
    assert counts[0] == counts[1] + counts[2]


def shown(row) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def payments(*judged: bool):
    fields = {"payer": "p", "kind": "a", "account": 7, "vip": "true", "amount": "5.00", "fee": 1}
    return [
        fields | {"id": f"e{number}", "at": number, "position": number, JUDGED: flag}
        for number, flag in enumerate(judged, 1)
    ]


def test_they_start_no_cooldown_and_no_rule_over_alerts_counts_them():
    third = {"aggregate": {"function": "count"}, "limit": {"operator": ">=", "value": "3"}}
    of_alerts = {"on": "alerts", "aggregate": {"function": "count"}, "limit": {"operator": ">=", "value": "1"}}
    found = Pipeline(
        first_rule_set([rule("cool", cooldown="1h", **third), rule("again", reset_on_alert=True, **third)]),
        PAYMENTS,
        shards=1,
    )
    for row in payments(True, False, False, False, True, True, True):
        found.batch([[row]])
    raised = [(row["rule_id"], row["event_id"]) for row in found.output(columns.ALERTS)]
    assert raised == [("cool", "e5"), ("again", "e5")], "e3 and e4 crossed the limit, and raised nothing"
    assert [row["event_id"] for row in found.output(columns.HELD_ALERTS)] == ["e6", "e7"]
    counting = Pipeline(first_rule_set([rule("first", **third), rule("second", **of_alerts)]), PAYMENTS, shards=1)
    counting.batch([payments(True, False, False, True)])
    assert [(row["rule_id"], row["event_id"]) for row in counting.output(columns.ALERTS)] == [
        ("first", "e4"),
        ("second", "e4"),
    ]


def test_an_event_that_comes_by_two_topics_is_the_one_that_came_first():
    """The second one is a repeat, whichever of them is judged."""
    first, second = payments(False, True)
    found = Pipeline(first_rule_set([rule("any")]), PAYMENTS, shards=1)
    found.batch([[first, second | {"id": "e1", "at": 1}]])
    (group,) = found.accounts[0].groups
    assert (group.unjudged, group.duplicates, group.evaluated) == (1, 1, 0)
    assert [row["position"] for row in found.output(columns.DUPLICATES)] == [2]


def test_one_that_is_no_event_is_a_dead_letter():
    (row,) = payments(False)
    found = Pipeline(first_rule_set([rule("any")]), PAYMENTS, shards=1)
    found.batch([[row | {"at": "never"}]])
    assert (found.accounts[0].malformed, len(found.output(columns.DEAD_LETTERS))) == (1, 1)


def test_the_archive_remembers_which_they_are():
    rows = arrivals(payments(True, False), PAYMENTS)
    kept = archived(rows, PAYMENTS, 3)
    assert kept["_judged"].to_pylist() == [True, False]
    (again,) = arrivals_of(kept.append_column("_arrival", pa.array([0, 1])), PAYMENTS)
    assert again.column(JUDGED).to_pylist() == [True, False]
    (judged,) = arrivals_of(archived(rows.drop_columns([JUDGED]), PAYMENTS, 3), PAYMENTS)
    assert JUDGED not in judged.schema.names

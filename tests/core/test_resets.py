"""Rules with `reset_on_alert`: what policies remember between batches gives what a loop over lists says."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import SCHEMA as PAYMENTS
from tests.core.examples import rule
from tests.core.pipeline import Pipeline
from tests.core.test_shard import cut, row_of
from tests.laws import examples
from tests.oracle import Oracle
from tests.strategies import MEASURES, SCHEMA, cuts, rules, streams


def moment(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


@st.composite
def cases(draw):
    """Rules, some of which are in effect for a while only, and a stream of two keys with late and repeated events."""
    events = draw(streams(overflowing=False, max_size=60, nulls=False))
    start_ms = min((event.time_ms for event in events), default=0)
    found = []
    for each in draw(rules(resets=True)):
        near = draw(st.integers(start_ms - 20, start_ms + 150))
        effective = draw(st.sampled_from([None, None, {"from": moment(near)}, {"until": moment(near)}]))
        found.append(Rule.model_validate(each.model_dump(by_alias=True, mode="json") | {"effective": effective}))
    return found, events


@settings(max_examples=examples(60), deadline=None)
@given(cases(), cuts(), st.integers(1, 5), st.booleans(), st.sampled_from(["evaluate", "add"]))
def test_any_cut_and_any_shards_count_from_the_start_again_where_a_loop_over_lists_does(
    case, where, shards, backwards, late
):
    rules, events = case
    pipeline = Pipeline(first_rule_set(rules), SCHEMA, shards=shards, allowed_lateness="100ms", late=late)
    for batch in cut([row_of(event, position) for position, event in enumerate(events, 1)], where):
        pipeline.batch([batch[: len(batch) // 2], batch[len(batch) // 2 :]], backwards)
    oracle, expected = Oracle(rules, MEASURES, 100, late), []
    for position, each in enumerate(events, 1):
        results = oracle.arrive(each).results
        expected += [(position, rule_id, result.value, result.fired) for rule_id, result in results.items()]
    found = [
        (row["position"], row["rule_id"], row["value"], row["fired"]) for row in pipeline.output(columns.EVALUATIONS)
    ]
    assert sorted(found) == sorted(expected)


def fired(pipeline: Pipeline, rule_id: str) -> list[str]:
    return [row["event_id"] for row in pipeline.output(columns.ALERTS) if row["rule_id"] == rule_id]


def test_a_rule_counts_from_the_start_again_and_what_it_shares_stays_as_it_is():
    third = {"aggregate": {"function": "count"}, "limit": {"operator": ">=", "value": "3"}}
    one = Pipeline(
        first_rule_set([rule("again", reset_on_alert=True, **third), rule("on", **third)]), PAYMENTS, shards=1
    )
    for number in range(1, 8):
        fields = {"id": f"e{number}", "at": number, "payer": "p", "kind": "a", "account": 7, "vip": "true"}
        one.batch([[fields | {"amount": "5.00", "fee": 1, "position": number}]])
    assert fired(one, "again") == ["e3", "e6"]
    assert fired(one, "on") == ["e3", "e4", "e5", "e6", "e7"]


def test_what_a_cooldown_holds_back_resets_the_rule_too():
    third = {"aggregate": {"function": "count"}, "limit": {"operator": ">=", "value": "3"}, "cooldown": "1h"}
    one = Pipeline(first_rule_set([rule("again", reset_on_alert=True, **third)]), PAYMENTS, shards=1)
    for number in range(1, 8):
        fields = {"id": f"e{number}", "at": number, "payer": "p", "kind": "a", "account": 7, "vip": "true"}
        one.batch([[fields | {"amount": "5.00", "fee": 1, "position": number}]])
    assert fired(one, "again") == ["e3"]
    assert [row["event_id"] for row in one.output(columns.HELD_ALERTS)] == ["e6"]

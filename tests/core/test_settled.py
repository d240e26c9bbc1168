"""A timeline that is said to lie as it would be laid down now is not changed by a trim, under whatever plan."""

from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.config.engine import EngineSettings
from buckets.engine.storage.shard_store import head_key
from buckets.kernel.group_plans import join_plans
from buckets.kernel.keyed_events import are_settled, no_events
from buckets.kernel.plan import plan_group
from buckets.kernel.score import score_all
from tests.core.examples import SCHEMA, rule
from tests.core.test_eviction import LATENESS_MS, SMALL, Shard, one_voter, small
from tests.laws import examples

__all__ = ["one_voter"]
WINDOWS = st.sampled_from(["1ms", "40ms", "400ms"])
PRECISIONS = st.sampled_from([{}, {"tail": "20ms", "resolution": "10ms"}, {"tail": "100ms", "resolution": "3ms"}])
TIMES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-200, 200)), min_size=1, max_size=12)


def group_of(window: str, is_wide: bool):
    """The group of payers, over one measure or two."""
    rules = [rule("long", length=window), *([rule("fee", "fee", length=window)] if is_wide else [])]
    return rules, Shard(rules).rule_set.groups[0]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=5), WINDOWS, WINDOWS, PRECISIONS, PRECISIONS, st.booleans(), st.booleans())
def test_a_trim_changes_nothing_of_what_is_settled(batches, window, other, precision, later, was_wide, is_wide):
    with small():
        one = Shard(group_of(window, was_wide)[0], precision=precision)
        for events in batches:
            one.take(*events)
    heads = one.store.heads.data
    engine = EngineSettings.model_validate({"allowed_lateness": f"{LATENESS_MS}ms", "precision": later})
    for plan in (
        plan_group(one.rule_set.groups[0], SCHEMA, one.scorer.engine),
        plan_group(group_of(other, is_wide)[1], SCHEMA, engine),
    ):
        for head, settled in zip(
            heads.values(), are_settled(plan, ByteStrings.of([*heads.values()]), SMALL), strict=True
        ):
            if settled:
                nothing = no_events(1, len(plan.group.measures))
                alone, joined = ByteStrings.of([head]), join_plans([plan])
                laid_down = score_all([plan], joined, alone, None, nothing, emit_all=False, paging=SMALL)
                assert laid_down.heads.to_list() == [head]
                assert not len(laid_down.pages.keys)


def test_what_was_scored_is_settled_until_horizon_tail_or_measures_are_others():
    rules, group = group_of("40ms", False)
    one = Shard(rules)
    one.take(("a", 0), ("a", 30), ("b", 10), ("b", 11))
    heads = ByteStrings.of([one.store.heads.data[head_key(group.group_id, key)] for key in "ab"] + [b""])
    precise = {"allowed_lateness": "1ms"}
    for window, is_wide, engine, settled in (
        ("40ms", False, {}, [True, True, False]),
        ("1ms", False, precise, [False, True, False]),
        ("40ms", False, precise | {"precision": {"tail": "2ms", "resolution": "1ms"}}, [True, True, False]),
        ("40ms", False, precise | {"precision": {"tail": "2ms", "resolution": "5ms"}}, [False, True, False]),
        ("40ms", True, {}, [False, False, False]),
    ):
        plan = plan_group(group_of(window, is_wide)[1], SCHEMA, EngineSettings.model_validate(engine))
        assert are_settled(plan, heads, SMALL).tolist() == settled

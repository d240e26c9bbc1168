"""The laws of the core, on random streams against the oracle, where every event is kept raw."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import Engine
from tests.oracle import Oracle
from tests.strategies import MEASURES, pagings, rules, streams

LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])
CUTS = st.lists(st.integers(0, 80), max_size=8)


def cut(events, places):
    """Events cut into micro-batches at the given places."""
    ends = sorted({min(place, len(events)) for place in places} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


@settings(max_examples=300)
@given(rules(), streams(), LATENESS, LATE, COLLISION, pagings(), CUTS)
def test_the_core_equals_a_loop_over_a_list(rules, events, lateness_ms, late, collision, paging, places):
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", late=late, collision=collision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    assert engine.run(cut(events, places)) == [oracle.arrive(event) for event in events]


@settings(max_examples=150)
@given(rules(), streams(), LATENESS, LATE, COLLISION, pagings(), CUTS)
def test_cutting_the_same_arrivals_into_other_batches_or_pages_changes_nothing(
    rules, events, lateness_ms, late, collision, paging, places
):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    whole, pieces, singles = (Engine(rules, each, **settings) for each in (paging, paging, paging))
    elsewhere = Engine(rules, **settings)
    expected = whole.run([events])
    assert pieces.run(cut(events, places)) == expected
    assert singles.run([[event] for event in events]) == expected
    assert elsewhere.run(cut(events, places)) == expected
    assert whole.state() == pieces.state() == singles.state() == elsewhere.state()


@settings(max_examples=80)
@given(rules(min_size=20, max_size=20), streams(max_size=40, overflowing=False))
def test_twenty_windows_at_once_are_each_exact(rules, events):
    oracle = Oracle(rules, MEASURES)
    assert Engine(rules, allowed_lateness="0ms").run([events]) == [oracle.arrive(event) for event in events]


@settings(max_examples=80)
@given(rules(), streams())
def test_rows_of_fired_rules_only_are_the_fired_ones_of_all_rows(rules, events):
    every, fired = Engine(rules), Engine(rules)
    expected = every.batch(events) if events else []
    for outcome in expected:
        outcome.bounds = {rule: bounds for rule, bounds in outcome.bounds.items() if outcome.results[rule].fired}
        outcome.results = {rule: result for rule, result in outcome.results.items() if result.fired}
    assert (fired.batch(events, emit_all=False) if events else []) == expected


@given(rules(), streams(), LATENESS, LATE)
def test_every_result_is_exact_where_every_event_is_kept_raw(rules, events, lateness_ms, late):
    for outcome in Engine(rules, allowed_lateness=f"{lateness_ms}ms", late=late).run([[event] for event in events]):
        for rule_id, result in outcome.results.items():
            assert outcome.bounds[rule_id] == (result.value, result.value, True, True)

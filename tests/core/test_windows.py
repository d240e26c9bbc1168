"""The laws of the core, on random streams against the oracle, where every event is kept raw."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.needed import Paging
from buckets.rule import Rule
from tests.engine import Engine, cut
from tests.oracle import Event, Oracle
from tests.strategies import MEASURES, cuts, pagings, rules, streams

LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])


@settings(max_examples=300)
@given(rules(), streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_the_core_equals_a_loop_over_a_list(rules, events, lateness_ms, late, collision, paging, places):
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", late=late, collision=collision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    assert engine.run(cut(events, places)) == [oracle.arrive(event) for event in events]


@settings(max_examples=150)
@given(rules(), streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
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
            assert outcome.bounds[rule_id] == (result.value, result.value, True, True, result.count, result.count)


def test_a_late_event_in_the_head_is_evaluated_with_the_page_in_which_its_edge_lies():
    """The window of the late event reaches back into the last page."""
    rule = Rule.model_validate(
        {
            "rule_id": "r",
            "group_by": ["k"],
            "aggregate": {"function": "sum", "measure": "amount"},
            "window": {"length": "6ms"},
            "limit": {"operator": ">", "value": "0"},
        }
    )
    engine = Engine([rule], Paging(3, 5, 16), allowed_lateness="100ms", late="evaluate")
    events = [Event(f"e{at}", at, "k", (Decimal(1), Decimal(0))) for at in range(20)]
    engine.run([[event] for event in events])
    assert [cell.first_ms for cell in engine.view("k").cells if cell.page is None] == [15, 16, 17, 18, 19]
    (outcome,) = engine.run([[Event("late", 17, "k", (Decimal(5), Decimal(0)))]])
    assert outcome.results == {"r": (12, 8, True)}
    assert outcome.bounds == {"r": (12, 12, True, True, 8, 8)}

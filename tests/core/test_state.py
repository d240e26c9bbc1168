"""What a timeline holds: no more and no less than its horizon and its tiers ask for, whatever came before."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.test_bounds import check_bounds
from tests.engine import Engine, cut
from tests.laws import examples
from tests.oracle import Oracle
from tests.strategies import MEASURES, cuts, pagings, precisions, rules, streams

ALL = st.just({"tail": "all"})
LATENESS = st.sampled_from([0, 3, 20, 100])
CHANGE = st.integers(0, 80)
"""How many events come before what changes."""


def expected_state(oracle, measures):
    return {key: (clock_ms, oracle.cells(key, measures)) for key, clock_ms in oracle.clock_ms.items()}


def by_time(events):
    """Events, one by one in the order of their times."""
    return [[event] for event in sorted(events, key=lambda event: event.time_ms)]


@pytest.mark.slow
@settings(max_examples=examples(250))
@given(rules(), streams(), LATENESS, st.one_of(ALL, precisions()), st.sampled_from(["add", "drop"]), pagings(), cuts())
def test_a_timeline_holds_its_horizon_folded_as_the_tiers_say(
    rules, events, lateness_ms, precision, late, paging, positions
):
    """Amounts are so large now and then that events are taken out again: the oracle does the same, for `tail: all`."""
    fits = (lambda event: True) if precision["tail"] == "all" else (lambda event: abs(event.values[0] or 0) < 10)
    small = [event for event in events if fits(event)]
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", late=late, precision=precision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, precision=precision)
    for batch in cut(small, positions):
        engine.run([batch])
        for event in batch:
            oracle.arrive(event)
        assert engine.state() == expected_state(oracle, engine.plan.group.measures)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(rules(), streams(), LATENESS, st.one_of(ALL, precisions()), pagings(), cuts())
def test_every_page_is_named_once_and_its_entry_says_what_its_cells_say(
    rules, events, lateness_ms, precision, paging, positions
):
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", precision=precision)
    for batch in cut(events, positions):
        engine.run([batch])
        engine.check_store()


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(), streams(overflowing=False, repeating=False), LATENESS, st.one_of(ALL, precisions()), pagings(), cuts())
def test_a_timeline_is_what_a_fresh_run_over_the_events_inside_its_horizon_holds(
    rules, events, lateness_ms, precision, paging, positions
):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "precision": precision}
    engine, fresh = Engine(rules, paging, **settings), Engine(rules, paging, **settings)
    oracle = Oracle(rules, MEASURES, lateness_ms, precision=precision)
    engine.run(cut(events, positions))
    for event in events:
        oracle.arrive(event)
    coarsest_ms = max((width_ms for _, width_ms in oracle.tiers), default=1)
    for key, arrived in oracle.events.items():
        kept_from_ms = (oracle.clock_ms[key] - oracle.horizon_ms) // coarsest_ms * coarsest_ms
        fresh.run(by_time(event for event in arrived if event.time_ms >= kept_from_ms))
    assert engine.state() == fresh.state()


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(), streams(), st.one_of(ALL, precisions()), pagings(), cuts())
def test_a_visit_without_events_changes_nothing_but_bytes(rules, events, precision, paging, positions):
    engine, visited = (Engine(rules, paging, allowed_lateness="20ms", precision=precision) for _ in range(2))
    expected = engine.run(cut(events, positions))
    found = []
    for batch in cut(events, positions):
        found += visited.run([batch])
        visited.visit(sorted(visited.store))
        visited.check_store()
    assert found == expected
    assert visited.state() == engine.state()


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(rules(min_size=2), streams(overflowing=False), st.one_of(ALL, precisions()), pagings(), cuts(), CHANGE)
def test_a_horizon_that_shrinks_leaves_what_a_fresh_run_under_the_new_rules_holds(
    rules, events, precision, paging, positions, change
):
    """Rules go one after the other, the last one stays: what its window needs does, once a key is visited."""
    fewer = [rules[0].model_copy(update={"state": "ACTIVE"})]
    engine = Engine(rules, paging, allowed_lateness="3ms", precision=precision)
    oracle, after = Oracle(rules, MEASURES, 3, precision=precision), Oracle(fewer, MEASURES, 3, precision=precision)
    first, second = events[:change], events[change:]
    engine.run(cut(first, positions))
    for event in first:
        oracle.arrive(event)
    engine.rules(fewer)
    after.events, after.clock_ms = oracle.events, oracle.clock_ms
    visited = set()
    for batch in cut(second, positions):
        assert engine.run([batch]) == [after.arrive(event) for event in batch]
        engine.check_store()
        visited |= {event.key for event in batch}
        expected = expected_state(after, engine.plan.group.measures)
        assert {key: engine.state()[key] for key in visited} == {key: expected[key] for key in visited}


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    rules(min_size=2, lengths_ms=[10, 25, 100, 200]),
    streams(overflowing=False),
    pagings(),
    cuts(),
    CHANGE,
)
def test_a_horizon_that_grows_brings_nothing_back_and_loses_nothing_more(rules, events, paging, positions, change):
    """What lay inside the old horizon stays, all that came since is there; a measure that was not kept counts as 0."""
    rules = sorted(rules, key=lambda rule: rule.window.begins_ms)
    engine = Engine(rules[:1], paging, allowed_lateness="3ms")
    oracle, after = Oracle(rules[:1], MEASURES, 3), Oracle(rules, MEASURES, 3)
    known = engine.plan.group.measures
    engine.run(cut(events[:change], positions))
    for event in events[:change]:
        oracle.arrive(event)
    engine.rules(rules)
    for key, clock_ms in oracle.clock_ms.items():
        after.clock_ms[key] = clock_ms
        after.events[key] = [
            event._replace(
                values=tuple(v if m in known else Decimal(0) for m, v in zip(MEASURES, event.values, strict=True))
            )
            for event in oracle.events[key]
            if event.time_ms >= clock_ms - oracle.horizon_ms
        ]
    for batch in cut(events[change:], positions):
        assert engine.run([batch]) == [after.arrive(event) for event in batch]
        engine.check_store()
    assert engine.state() == expected_state(after, engine.plan.group.measures)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    rules(),
    streams(overflowing=False, repeating=False),
    st.lists(st.one_of(ALL, precisions()), min_size=2, max_size=4),
    pagings(),
    cuts(),
)
def test_bounds_hold_when_the_tiers_change_between_two_batches(rules, events, settings, paging, positions):
    """A tail may get longer or shorter and widths may not divide: what was folded stays folded, and is known to be."""
    engine, found = Engine(rules, paging, allowed_lateness="20ms", precision=settings[0]), []
    for number, batch in enumerate(cut(events, positions)):
        engine.settings(allowed_lateness="20ms", precision=settings[number % len(settings)])
        found += engine.run([batch])
        engine.check_store()
    check_bounds(rules, found, Engine(rules, allowed_lateness="20ms").run([events]))


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(), streams(overflowing=False, repeating=False), precisions(), precisions(), pagings(), CHANGE)
def test_tiers_that_have_changed_are_forgotten_once_the_horizon_has_passed(rules, events, one, other, paging, change):
    """What was folded otherwise lies beyond the horizon by then."""
    longest_ms = max(rule.window.begins_ms for rule in rules)
    later = [event._replace(time_ms=event.time_ms + 10 * longest_ms + 10_000) for event in events[change:]]
    engine = Engine(rules, paging, allowed_lateness="20ms", precision=one)
    engine.run([events[:change]])
    engine.settings(allowed_lateness="20ms", precision=other)
    found = engine.run([[event] for event in later])
    fresh = Engine(rules, paging, allowed_lateness="20ms", precision=other)
    for key in {event.key for event in events[:change]}:
        seen = [event for event in later if event.key == key]
        on_time = [outcome for event, outcome in zip(later, found, strict=True) if event.key == key]
        expected = fresh.run([[event] for event in seen])
        assert [outcome.results for outcome in on_time[1:]] == [outcome.results for outcome in expected[1:]]
        if seen:
            assert engine.cells(key) == fresh.cells(key)
    engine.check_store()


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    rules(),
    streams(overflowing=False),
    st.one_of(ALL, precisions()),
    st.one_of(ALL, precisions()),
    pagings(),
    cuts(),
    CHANGE,
)
def test_a_group_that_goes_and_comes_again_begins_anew_and_leaves_no_page(
    rules, events, one, other, paging, positions, change
):
    engine = Engine(rules, paging, allowed_lateness="20ms", precision=one)
    engine.run(cut(events[:change], positions))
    left = set(engine.store) - {event.key for event in events[change:]}
    kept = {key: (engine.store[key], engine.view(key)) for key in left}
    generation = engine.plan.group.generation
    engine.rules([rules[0].model_copy(update={"group_by": ("k", "other")})])
    engine.rules(rules)
    assert engine.plan.group.generation > generation
    engine.settings(allowed_lateness="20ms", precision=other)
    fresh = Engine(rules, paging, allowed_lateness="20ms", precision=other)
    for batch in cut(events[change:], positions):
        assert engine.run([batch]) == fresh.run([batch])
        engine.check_store()
    assert {key: engine.state()[key] for key in fresh.store} == fresh.state()
    assert {key: (engine.store[key], engine.view(key)) for key in left} == kept


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(rules(), streams(overflowing=False), st.one_of(ALL, precisions()), pagings())
def test_a_visit_after_the_group_came_again_leaves_nothing(rules, events, precision, paging):
    engine = Engine(rules, paging, allowed_lateness="20ms", precision=precision)
    engine.run([events])
    assume(engine.pages)
    engine.plan = replace(engine.plan, group=replace(engine.plan.group, generation=7))
    engine.visit(sorted(engine.store))
    assert engine.pages == {}
    engine.check_store()
    assert all(cells == [] for _, cells in engine.state().values())

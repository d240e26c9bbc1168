"""The laws of the core, on random streams against the oracle, where every event is kept raw."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.rules.rule import Rule
from buckets.timeline.tiers import Paging
from tests.engine import Engine, cut
from tests.laws import examples
from tests.oracle import COMPARE, Cell, Event, Oracle, Outcome, Result
from tests.strategies import LENGTHS_MS, MEASURES, cuts, pagings, precisions, rules, streams

LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(rules(resets=True), streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_the_core_equals_a_loop_over_a_list(rules, events, lateness_ms, late, collision, paging, positions):
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", late=late, collision=collision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    assert engine.run(cut(events, positions)) == [oracle.arrive(event) for event in events]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(rules(resets=True), streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_cutting_the_same_arrivals_into_other_batches_or_pages_changes_nothing(
    rules, events, lateness_ms, late, collision, paging, positions
):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    whole, pieces, singles = (Engine(rules, each, **settings) for each in (paging, paging, paging))
    elsewhere = Engine(rules, **settings)
    expected = whole.run([events])
    assert pieces.run(cut(events, positions)) == expected
    assert singles.run([[event] for event in events]) == expected
    assert elsewhere.run(cut(events, positions)) == expected
    assert whole.state() == pieces.state() == singles.state() == elsewhere.state()


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(rules(resets=True), streams(), pagings(), cuts())
def test_a_rule_that_is_reset_is_exact_where_its_window_lies_in_the_tail(rules, events, paging, positions):
    precision = {"tail": f"{max(LENGTHS_MS)}ms", "resolution": "300ms"}
    engine, oracle = Engine(rules, paging, precision=precision), Oracle(rules, MEASURES, 3_600_000)
    reset = {rule.rule_id for rule in rules if rule.reset_on_alert}
    for found, expected in zip(engine.run(cut(events, positions)), map(oracle.arrive, events), strict=True):
        for rule_id in reset & (found.results.keys() | expected.results.keys()):
            assert found.results[rule_id] == expected.results[rule_id]


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(rules(min_size=20, max_size=20), streams(max_size=40, overflowing=False))
def test_twenty_windows_at_once_are_each_exact(rules, events):
    oracle = Oracle(rules, MEASURES)
    assert Engine(rules, allowed_lateness="0ms").run([events]) == [oracle.arrive(event) for event in events]


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(rules(resets=True), streams())
def test_rows_of_fired_rules_only_are_the_fired_ones_of_all_rows(rules, events):
    every, fired = Engine(rules), Engine(rules)
    expected = every.batch(events) if events else []
    for outcome in expected:
        outcome.bounds = {rule: bounds for rule, bounds in outcome.bounds.items() if outcome.results[rule].fired}
        outcome.results = {rule: result for rule, result in outcome.results.items() if result.fired}
    assert (fired.batch(events, emit_all=False) if events else []) == expected


LIMITS = st.integers(-3000, 3000).map(lambda n: Decimal(n).scaleb(-3))
OPERATORS = st.sampled_from([">", ">=", "<", "<=", "=", "!="])


@st.composite
def with_twins(draw):
    """Rules, and others that differ from one of them in operator and limit alone."""
    found = list(draw(rules(max_size=3)))
    for number, each in enumerate(draw(st.lists(st.sampled_from(found), min_size=5, max_size=12))):
        limit = each.limit.model_copy(update={"operator": draw(OPERATORS), "value": draw(LIMITS)})
        found.append(each.model_copy(update={"rule_id": f"twin {number}", "limit": limit}))
    return draw(st.permutations(found))


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(with_twins(), streams(max_size=40), LATENESS, LATE, st.one_of(st.just({"tail": "all"}), precisions()))
def test_rules_that_share_a_feature_fire_as_each_would_alone(many, events, lateness_ms, late, precision):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "late": late if precision.get("tail") == "all" else "add"}
    together = Engine(many, **settings, precision=precision).run([events])
    fired = Engine(many, **settings, precision=precision).batch(events, emit_all=False) if events else []
    oracle = Oracle(many, MEASURES, lateness_ms, settings["late"])
    if precision.get("tail") == "all":
        assert together == [oracle.arrive(event) for event in events]
    for every, only in zip(together, fired, strict=True):
        expected = [(name, found) for name, found in every.results.items() if found.fired]
        assert list(only.results.items()) == expected
        assert [name for name, _ in expected] == [one.rule_id for one in many if one.rule_id in only.results]
        assert list(every.results) == [one.rule_id for one in many if one.rule_id in every.results]
        for other in many:
            value = every.results.get(other.rule_id)
            assert value is None or value.fired == crosses(value, other)


def crosses(result: Result, rule: Rule) -> bool:
    """Whether a result crosses its limit; an average close to it is compared by digits that are not shown."""
    limit, value = rule.limit.value, result.value
    if value is None:
        return False
    if rule.aggregate.function == "avg" and abs(value - limit) <= Decimal("1e-6"):
        return result.fired
    return COMPARE[rule.limit.operator](value, limit)


@pytest.mark.slow
@given(rules(), streams(), LATENESS, LATE)
def test_every_result_is_exact_where_every_event_is_kept_raw(rules, events, lateness_ms, late):
    for outcome in Engine(rules, allowed_lateness=f"{lateness_ms}ms", late=late).run([[event] for event in events]):
        for rule_id, result in outcome.results.items():
            assert outcome.bounds[rule_id] == (result.value, result.value, True, True, result.count, result.count)


OTHER_STATES = st.sampled_from(["SHADOW", "SHADOW", "PAUSE"])


@st.composite
def others(draw, longest_ms: int | None):
    """Rules on trial or paused, with windows of up to a length."""
    changed = []
    for rule in draw(rules(max_size=4)):
        window = rule.window
        if longest_ms is not None and window.begins_ms > longest_ms:
            window = window.model_copy(update={"length_ms": min(window.length_ms, longest_ms), "offset_ms": 0})
        state = draw(OTHER_STATES)
        changed.append(rule.model_copy(update={"rule_id": f"other {rule.rule_id}", "window": window, "state": state}))
    return changed


def in_force(many: list[Rule]) -> list[Rule]:
    return [rule.model_copy(update={"state": "ACTIVE"}) for rule in many]


def without_others(outcomes: list[Outcome]) -> list[Outcome]:
    """Outcomes with the results of rules in force alone."""
    for each in outcomes:
        each.results, each.bounds = (
            {rule_id: found for rule_id, found in by_rule.items() if not rule_id.startswith("other")}
            for by_rule in (each.results, each.bounds)
        )
        each.beyond = []
    return outcomes


def of_columns(cell: Cell, columns: int) -> Cell:
    """What a cell says of the first measures."""
    sums = {name: getattr(cell, name)[:columns] for name in ("plus", "minus", "least", "greatest", "nulls")}
    return cell._replace(**sums)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(rules(max_size=4).map(in_force), streams(), LATENESS, LATE, COLLISION, st.data())
def test_rules_on_trial_and_paused_ones_change_nothing_for_rules_in_force(
    rules, events, lateness_ms, late, collision, data
):
    added = data.draw(others(max(rule.window.begins_ms for rule in rules)), "others")
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    needs_raw = late == "evaluate" or collision != "keep"
    every = st.just({"tail": "all"})
    policies["precision"] = data.draw(st.one_of(every, precisions(shortest_tail_ms=lateness_ms * needs_raw)))
    alone, beside = Engine(rules, **policies), Engine([*rules, *added], **policies)
    batches = cut(events, data.draw(cuts()))
    assert without_others(beside.run(batches)) == alone.run(batches)
    columns = len(alone.plan.group.measures)
    state = {key: (at, [of_columns(cell, columns) for cell in cells]) for key, (at, cells) in beside.state().items()}
    assert state == alone.state()


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(rules(max_size=4).map(in_force), others(None), streams(), LATENESS, LATE, COLLISION, cuts())
def test_with_longer_windows_on_trial_only_what_was_too_late_may_be_taken_in(
    rules, added, events, lateness_ms, late, collision, positions
):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    alone = Engine(rules, **policies).run(cut(events, positions))
    beside = without_others(Engine([*rules, *added], **policies).run(cut(events, positions)))
    for one, other in zip(beside, alone, strict=True):
        if other.outcome == "too_late":
            assert one.results == {}
        else:
            assert one == other


def test_the_sum_of_a_rule_on_trial_that_passes_64_bits_costs_that_rule_its_result_and_nothing_else():
    def rule(rule_id: str, **changes) -> Rule:
        written = {
            "rule_id": rule_id,
            "group_by": ["k"],
            "aggregate": {"function": "sum", "measure": "fee"},
            "window": {"length": "2ms"},
            "limit": {"operator": ">", "value": "0"},
        }
        return Rule.model_validate(written | changes)

    longer = {"window": {"length": "10ms"}, "state": "SHADOW"}
    average = {"aggregate": {"function": "avg", "measure": "fee"}}
    engine = Engine([rule("a"), rule("b", **longer), rule("c", **longer, **average), rule("d", **average)])
    events = [Event(f"e{at}", at, "k", (Decimal(0), Decimal(2**62))) for at in (1, 4, 7)]
    _, *outcomes = engine.run([events])
    for outcome in outcomes:
        assert (outcome.outcome, outcome.applied, outcome.beyond) == ("evaluated", True, ["b", "c"])
        assert outcome.results == {"a": (2**62, 1, True), "d": (2**62, 1, True)}


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

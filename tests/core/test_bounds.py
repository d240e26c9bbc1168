"""Windows whose edge may fall into a bucket: the value of `tail: all` always lies between the bounds."""

from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.rules.rule import Rule
from tests.engine import Engine, cut
from tests.laws import examples
from tests.oracle import COMPARE, Event, Oracle, average_bounds, width_at
from tests.strategies import EDGES, MEASURES, cuts, pagings, precisions, rules, streams

LATENESS = st.sampled_from([0, 3, 20, 100])


@st.composite
def orderly(draw):
    """Precision and policies that need raw events, and a stream whose late events all fall into the tail."""
    lateness_ms = draw(LATENESS)
    precision = draw(precisions(shortest_tail_ms=lateness_ms))
    events = draw(streams(overflowing=False, latest_ms=int(precision["tail"][:-2])))
    policies = {
        "allowed_lateness": f"{lateness_ms}ms",
        "late": draw(st.sampled_from(["add", "evaluate", "drop"])),
        "collision": draw(st.sampled_from(["keep", "keep_first", "replace"])),
    }
    return precision, policies, events


def check_bounds(rules, found, exact_run, is_all=True):
    """Check outcomes against those of the same stream with every event kept raw."""
    for outcome, exact in zip(found, exact_run, strict=True):
        assert (outcome.outcome, outcome.applied, outcome.clock_ms) == (exact.outcome, exact.applied, exact.clock_ms)
        assert set(outcome.results) <= set(exact.results)
        assert set(outcome.results) == set(exact.results) or not is_all
        for rule_id, (value, count, fired) in outcome.results.items():
            lower, upper, is_exact, is_certain, fewest, most = outcome.bounds[rule_id]
            rule = next(rule for rule in rules if rule.rule_id == rule_id)
            true = exact.results[rule_id]
            is_count = rule.aggregate.function == "count"
            for each, of in ((true.value, true.count), (value, count)):
                assert (each is None) == (of == 0 and not is_count)
                assert fewest == 0 if each is None else lower <= each <= upper
                assert fewest <= of <= most
            if rule.aggregate.function != "avg":
                assert is_exact == (most == 0 or ((fewest > 0 or is_count) and lower == upper))
                assert fired == (value is not None and COMPARE[rule.limit.operator](value, rule.limit.value))
            if is_exact:
                assert lower == value == true.value == upper
            if is_exact or is_certain:
                assert is_certain
                assert fired == true.fired


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(
    rules(),
    streams(overflowing=False, repeating=False),
    LATENESS,
    st.sampled_from(["add", "drop"]),
    precisions(),
    pagings(),
    cuts(),
)
def test_the_value_of_the_exact_run_lies_between_the_bounds(
    rules, events, lateness_ms, late, precision, paging, positions
):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late}
    found = Engine(rules, paging, precision=precision, **policies).run(cut(events, positions))
    check_bounds(rules, found, Engine(rules, **policies).run([events]))


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(rules(), orderly(), pagings(), cuts())
def test_so_it_does_under_policies_that_need_raw_events(rules, setting, paging, positions):
    precision, policies, events = setting
    found = Engine(rules, paging, precision=precision, **policies).run(cut(events, positions))
    check_bounds(rules, found, Engine(rules, **policies).run([events]))


@settings(max_examples=examples(100))
@given(rules(), streams(overflowing=False, repeating=False), precisions(shortest_tail_ms=20), pagings(), cuts())
def test_of_late_events_that_are_evaluated_only_those_in_the_tail_are(rules, events, precision, paging, positions):
    policies = {"allowed_lateness": "20ms", "late": "evaluate"}
    found = Engine(rules, paging, precision=precision, **policies).run(cut(events, positions))
    check_bounds(rules, found, Engine(rules, **policies).run([events]), is_all=False)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(
    rules(),
    streams(overflowing=False),
    LATENESS,
    st.sampled_from(["add", "evaluate", "drop"]),
    st.sampled_from(["keep", "keep_first", "replace"]),
    st.data(),
)
def test_the_core_equals_a_loop_over_a_list(rules, events, lateness_ms, late, collision, data):
    needs_raw = late == "evaluate" or collision != "keep"
    precision = data.draw(precisions(shortest_tail_ms=lateness_ms if needs_raw else 0), "precision")
    paging, positions = data.draw(pagings(), "paging"), data.draw(cuts(), "positions")
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    engine = Engine(rules, paging, precision=precision, **policies)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision, precision)
    assert engine.run(cut(events, positions)) == [oracle.arrive(event) for event in events]


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(rules(), streams(), LATENESS, precisions(), pagings(), cuts())
def test_cutting_the_same_arrivals_into_other_batches_or_pages_changes_nothing(
    rules, events, lateness_ms, precision, paging, positions
):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "precision": precision}
    whole, pieces, singles = (Engine(rules, each, **settings) for each in (paging, paging, paging))
    elsewhere = Engine(rules, **settings)
    expected = whole.run([events])
    assert pieces.run(cut(events, positions)) == expected
    assert singles.run([[event] for event in events]) == expected
    assert elsewhere.run(cut(events, positions)) == expected
    assert whole.state() == pieces.state() == singles.state() == elsewhere.state()


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(rules(), streams(repeating=False), LATENESS, st.sampled_from(["add", "drop"]), precisions(), pagings())
def test_a_dead_letter_is_one_with_every_event_kept_raw_and_any_other_event_is_evaluated_within_bounds(
    rules, events, lateness_ms, late, precision, paging
):
    """An event of which buckets do not tell whether a sum passes 64 bits stays, so the exact run keeps it too here."""
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late}
    engine, oracle = Engine(rules, paging, precision=precision, **policies), Oracle(rules, MEASURES, lateness_ms, late)
    scales = {rule.rule_id: MEASURES.get(rule.measure or "", 0) for rule in rules}
    for event, outcome in zip(events, engine.run([[event] for event in events]), strict=True):
        is_refused = outcome.outcome == "overflow"
        exact = oracle.arrive(event, is_refused)
        assert outcome.outcome == exact.outcome
        assert set(outcome.beyond) <= set(exact.beyond)
        assert exact.beyond or not is_refused
        assert set(outcome.results) == set(exact.results) - set(outcome.beyond) or is_refused
        for rule_id, (value, _, fired) in outcome.results.items():
            lower, upper, is_exact, is_certain, fewest, most = outcome.bounds[rule_id]
            true = exact.results[rule_id]
            assert value is None or lower <= value <= upper
            assert fewest <= true.count <= most
            if rule_id not in exact.beyond:
                assert fewest == 0 if true.value is None else lower <= true.value <= upper
                assert value == true.value or not is_exact
                assert fired == true.fired or not is_certain
            elif most and upper - lower and function_of(rules, rule_id) != "avg":
                assert {2**63 - 1, -(2**63)} & {int(end.scaleb(scales[rule_id])) for end in (lower, upper)}


def function_of(rules, rule_id: str) -> str:
    return next(rule.aggregate.function for rule in rules if rule.rule_id == rule_id)


@settings(max_examples=examples(100))
@given(rules(), streams(overflowing=False), st.lists(EDGES, min_size=2, max_size=2), st.data(), pagings(), cuts())
def test_bounds_do_not_depend_on_what_a_value_does_with_its_edge(rules, events, edges, data, paging, positions):
    precision = data.draw(precisions(), "precision")
    one, other = (
        Engine(rules, paging, allowed_lateness="20ms", precision=precision | {"edge": edge}).run(cut(events, positions))
        for edge in edges
    )
    assert [outcome.bounds for outcome in one] == [outcome.bounds for outcome in other]


@settings(max_examples=examples(100))
@given(rules(lengths_ms=[1, 2, 5, 10, 25]), streams(overflowing=False), precisions(shortest_tail_ms=55), pagings())
def test_a_window_no_longer_than_the_tail_is_exact(rules, events, precision, paging):
    for outcome in Engine(rules, paging, allowed_lateness="100ms", precision=precision).run([events]):
        for rule_id, result in outcome.results.items():
            assert outcome.bounds[rule_id] == (result.value, result.value, True, True, result.count, result.count)


@settings(max_examples=examples(100))
@given(
    rules(),
    streams(overflowing=False, repeating=False),
    st.sampled_from([1, 2, 5, 10, 25]),
    st.sampled_from([0, 1, 10, 60]),
    pagings(),
)
def test_an_edge_in_the_tail_is_exact(rules, events, width_ms, tail_ms, paging):
    precision = {"tail": f"{tail_ms}ms", "resolution": f"{width_ms}ms"}
    outcomes = Engine(rules, paging, allowed_lateness="20ms", precision=precision).run([events])
    lengths_ms = {rule.rule_id: rule.window.reach_ms for rule in rules}
    for event, outcome in zip(events, outcomes, strict=True):
        border_ms = (event.time_ms - tail_ms) // width_ms * width_ms
        for rule_id, result in outcome.results.items():
            if event.time_ms - lengths_ms[rule_id] >= border_ms:
                assert outcome.bounds[rule_id] == (result.value, result.value, True, True, result.count, result.count)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(), streams(overflowing=False, repeating=False, least=0), precisions(), pagings(), cuts())
def test_values_that_are_not_negative_are_as_uncertain_as_the_bucket_of_the_edge_at_the_most(
    rules, events, precision, paging, positions
):
    """With a known sign a bound is what is surely inside, and the other one no more than a bucket beside it."""
    oracle = Oracle(rules, MEASURES, 100, precision=precision)
    engine = Engine(rules, paging, allowed_lateness="100ms", precision=precision)
    by_id = {rule.rule_id: rule for rule in rules}
    for event, outcome in zip(events, engine.run(cut(events, positions)), strict=True):
        oracle.arrive(event)
        for rule_id in outcome.results:
            rule, (lower, upper, *_) = by_id[rule_id], outcome.bounds[rule_id]
            edge_ms, end_ms = event.time_ms - rule.window.reach_ms, event.time_ms - rule.window.offset_ms
            arrived = [x for x in oracle.events[event.key] if x.time_ms <= event.time_ms]
            arrived = [x for x in arrived if rule.window.exclude is None or x is not event]
            ends = [(each, width_at(oracle.tiers, each, event.time_ms) or 1) for each in (edge_ms, end_ms)]
            around = [x for x in arrived if any(x.time_ms // width == each // width for each, width in ends)]
            after = [x for x in arrived if edge_ms <= x.time_ms <= end_ms and x not in around]
            if not rule.window.offset_ms and ends[1][1] == 1:
                after = [x for x in arrived if x.time_ms // ends[0][1] > edge_ms // ends[0][1]]
            column = list(MEASURES).index(rule.measure or "amount")
            if rule.aggregate.function == "sum":
                assert (lower or 0) >= sum(x.values[column] or 0 for x in after)
                assert (upper or 0) - (lower or 0) <= sum(x.values[column] or 0 for x in around)
            if rule.aggregate.function == "count":
                assert lower >= len(after)
                assert upper - lower <= len(around)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=4), st.lists(st.integers(-5, 5), max_size=6))
def test_an_average_lies_between_its_bounds_whichever_events_of_the_edge_are_in(sure, maybe):
    lower, upper = average_bounds(
        sure, maybe, plus=sum(x for x in maybe if x > 0), minus=-sum(x for x in maybe if x < 0)
    )
    for chosen in product([False, True], repeat=len(maybe)):
        values = sure + [value for value, is_in in zip(maybe, chosen, strict=True) if is_in]
        assert lower <= Fraction(sum(values), len(values)) <= upper


# Worked out by hand: tail 0, buckets of 10 ms, a window of 10 ms. The event at 25 ms has its edge at 15 ms, in the
# bucket [10, 20), which is open where that holds an event before 15 ms and one at 15 ms or later.
#
#     amounts   5      -3   8         2
#     ms       12      15  18   20   25
#     bucket  [10           20)

OPEN = [(12, "5.00"), (15, "-3.00"), (18, "8.00"), (25, "2.00")]


def last_of(function: str, edge: str, amounts, limit: str = "> 0", length: str = "10ms"):
    """Result and bounds of the last event."""
    operator, bound = limit.split()
    rule = Rule.model_validate(
        {
            "rule_id": "r",
            "group_by": ["k"],
            "aggregate": {"function": function, "measure": "amount"},
            "window": {"length": length},
            "limit": {"operator": operator, "value": bound},
        }
    )
    engine = Engine([rule], precision={"tail": "0ms", "resolution": "10ms", "edge": edge})
    events = [Event(f"e{at}", at, "k", (Decimal(amount), Decimal(0))) for at, amount in amounts]
    outcome = engine.run([[event] for event in events])[-1]
    return outcome.results["r"], outcome.bounds["r"]


@pytest.mark.parametrize(
    ("function", "edge", "value", "count"),
    [
        ("sum", "include", "12", 4),
        ("sum", "exclude", "2", 1),
        ("sum", "prorate", "7", 3),  # half of 10, beside 2; half of 3 events is 1.5, which rounds to 2
        ("count", "include", "4", 4),
        ("count", "exclude", "1", 1),
        ("count", "prorate", "3", 3),
        ("min", "include", "-3", 4),
        ("min", "exclude", "2", 1),
        ("min", "prorate", "-3", 3),
        ("max", "include", "8", 4),
        ("max", "exclude", "2", 1),
        ("avg", "include", "3", 4),
        ("avg", "exclude", "2", 1),
        ("avg", "prorate", "2.33333333", 3),
    ],
)
def test_what_a_value_does_with_the_bucket_of_its_edge(function, edge, value, count):
    result, _ = last_of(function, edge, OPEN)
    assert (result.value, result.count) == (Decimal(value), count)


@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
@pytest.mark.parametrize(
    ("function", "lower", "upper"),
    [
        ("sum", "-1", "15"),
        ("count", "1", "4"),
        ("min", "-3", "2"),
        ("max", "2", "8"),
        ("avg", "-1", "6.5"),  # (2 - 3) / 1; (2 + 3 * 8) / 4 is below (2 + 13) / 1
    ],
)
def test_bounds_worked_out_by_hand(function, edge, lower, upper):
    _, bounds = last_of(function, edge, OPEN)
    assert bounds[:3] == (Decimal(lower), Decimal(upper), False)


@pytest.mark.parametrize(
    ("limit", "is_certain"),
    [
        ("> -1.01", True),
        ("> -1", False),
        (">= -1", True),
        ("> 15", True),
        (">= 15", False),
        ("< -1", True),
        ("<= -1", False),
        ("<= 15", True),
        ("= -1.01", True),
        ("= -1", False),
        ("= 15", False),
        ("= 15.01", True),
        ("!= 5", False),
        ("!= 15.01", True),
        ("= 5.005", True),  # no sum of cents
        ("< 1e20", True),
    ],
)
@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
def test_a_comparison_is_certain_when_no_value_between_the_bounds_decides_otherwise(limit, is_certain, edge):
    _, bounds = last_of("sum", edge, OPEN, limit)
    assert bounds == (Decimal(-1), Decimal(15), False, is_certain, 1, 4)


@pytest.mark.parametrize(
    ("amounts", "value"),
    [
        ([(15, "1"), (19, "2"), (25, "4")], 7),  # the bucket begins at the edge
        ([(10, "1"), (14, "2"), (25, "4")], 4),  # and ends before it
        ([(9, "1"), (20, "2"), (25, "4")], 6),  # there is nothing in it
    ],
)
@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
def test_a_bucket_on_one_side_of_the_edge_leaves_nothing_open(amounts, value, edge):
    result, bounds = last_of("sum", edge, amounts)
    assert result.value == value
    assert bounds == (value, value, True, True, result.count, result.count)


@pytest.mark.parametrize("limit", ["= -4", "!= -4", "> -4", "<= -4"])
@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
def test_an_open_bucket_that_cannot_change_a_value_leaves_it_exact_and_certain(limit, edge):
    result, bounds = last_of("min", edge, [*OPEN[:-1], (25, "-4.00")], limit)
    assert (result.value, bounds) == (-4, (-4, -4, True, True, 1, 4))
    assert bounds.fewest <= 3 <= bounds.most  # what the window holds: the count is open, though the value is not
    amounts = [(12, "0.00"), (15, "0.00"), (25, "-4.00")]
    result, bounds = last_of("sum", edge, amounts, limit)
    assert (result.value, bounds) == (-4, (-4, -4, True, True, 1, 3))


@pytest.mark.parametrize(("sign", "ends"), [(1, (-(2**62), 2**63 - 1)), (-1, (-(2**63), 2**62))])
def test_a_bound_beyond_64_bits_is_the_last_number_that_fits(sign, ends):
    large = Decimal(sign * 2**62).scaleb(-2)
    _, bounds = last_of("sum", "include", [(11, large), (12, -large), (16, large), (17, -large), (25, large)])
    assert bounds[:2] == tuple(Decimal(end).scaleb(-2) for end in ends)


@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_bucket_beside_the_window_takes_no_event_from_it(function, edge):
    """The window holds 2**62 - 5 and 2**62, which fit; with the whole bucket of its edge the sum would not."""
    large = [(12, 2**62), (15, 2**62 - 5), (25, 2**62)]
    result, bounds = last_of(function, edge, [(at, Decimal(cents).scaleb(-2)) for at, cents in large])
    true = Decimal(2**63 - 5).scaleb(-2) / (1 if function == "sum" else 2)
    assert bounds.lower <= true <= bounds.upper
    assert bounds.lower <= result.value <= bounds.upper
    if (function, edge) == ("sum", "include"):
        assert result.value == Decimal(2**63 - 1).scaleb(-2)
    if (function, edge) == ("avg", "include"):
        assert result.value == (Decimal(3 * 2**62 - 5) / 300).quantize(Decimal("1e-8"))


@pytest.mark.parametrize(("limit", "is_certain"), [("> 3.3333333331", True), ("> 3.3333333334", False)])
def test_the_bounds_of_an_average_are_compared_as_they_are_and_not_as_they_are_shown(limit, is_certain):
    """They are 10/3 and 18/5. As they would be shown both limits are 3.33333333, but one lies between the bounds."""
    amounts = [(12, "4.00"), (15, "4.00"), (21, "3.00"), (22, "3.00"), (25, "4.00")]
    _, bounds = last_of("avg", "include", amounts, limit)
    assert bounds[:4] == (Decimal("3.33333333"), Decimal("3.6"), False, is_certain)

"""The first and the previous event of a window, and its different values, against a loop over a list."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.kernel.context import CELL_BEFORE, EVERY_CELL, FIRST_CELL, FIRST_VALUE, cells_read_of
from buckets.kernel.score import PAGING
from buckets.timeline.tiers import Paging
from tests.engine import Engine, cut
from tests.features import RANKS, FeatureEngine, FeatureOracle, Wanted, feature_streams, rules_for, wanted_features
from tests.laws import examples
from tests.oracle import Event
from tests.strategies import cuts, pagings, precisions

LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])


def check(wanted, events, lateness_ms, late, collision, paging, positions, precision=None):
    """Check a run against the oracle, and the pages that it leaves."""
    policies = {"late": late, "collision": collision, "precision": precision or {"tail": "all"}}
    engine = FeatureEngine(wanted, paging, allowed_lateness=f"{lateness_ms}ms", **policies)
    oracle = FeatureOracle.of(wanted, lateness_ms=lateness_ms, **policies)
    assert engine.run(cut(events, positions)) == [oracle.arrive(event) for event in events]
    engine.check_store()


@settings(max_examples=examples(1000))
@given(wanted_features(), feature_streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_they_equal_a_loop_over_a_list(wanted, events, lateness_ms, late, collision, paging, positions):
    check(wanted, events, lateness_ms, late, collision, paging, positions)


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(wanted_features(max_size=1), feature_streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_so_does_each_alone_whichever_pages_it_reads(wanted, events, lateness_ms, late, collision, paging, positions):
    check(wanted, events, lateness_ms, late, collision, paging, positions)


@settings(max_examples=examples(60))
@given(wanted_features(), feature_streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_cutting_the_same_arrivals_into_other_batches_or_pages_changes_nothing(
    wanted, events, lateness_ms, late, collision, paging, positions
):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    whole, pieces, elsewhere = (FeatureEngine(wanted, each, **policies) for each in (paging, paging, PAGING))
    expected = whole.run([events])
    assert pieces.run(cut(events, positions)) == expected
    assert elsewhere.run([[event] for event in events]) == expected
    assert whole.state() == pieces.state() == elsewhere.state()


@settings(max_examples=examples(60))
@given(
    wanted_features(lengths_ms=[1, 2, 5, 10, 25]),
    feature_streams(latest_ms=20),
    st.sampled_from([0, 3, 20]),
    LATE,
    COLLISION,
    precisions(shortest_tail_ms=45),
    pagings(),
    cuts(),
)
def test_windows_within_the_tail_are_exact(wanted, events, lateness_ms, late, collision, precision, paging, positions):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    found = FeatureEngine(wanted, paging, precision=precision, **policies).run(cut(events, positions))
    oracle = FeatureOracle.of(wanted, lateness_ms=lateness_ms, late=late, collision=collision)
    for event, outcome in zip(events, found, strict=True):
        exact = oracle.arrive(event)
        for at in range(len(wanted)):
            assert outcome.results.get(f"f{at}") == exact.results.get(f"f{at}")
            assert outcome.bounds.get(f"f{at}") == exact.bounds.get(f"f{at}")


@settings(max_examples=examples(60))
@given(wanted_features(), feature_streams(), LATENESS, st.integers(5, 60), pagings(), cuts())
def test_an_event_that_replaces_one_of_several_of_its_time_comes_before_the_others(
    wanted, events, lateness_ms, change, paging, positions
):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": "evaluate"}
    engine = FeatureEngine(wanted, paging, **policies)
    oracle = FeatureOracle.of(wanted, lateness_ms=lateness_ms, late="evaluate")
    assert engine.run(cut(events[:change], positions)) == [oracle.arrive(event) for event in events[:change]]
    engine.settings(collision="replace", **policies)
    oracle.collision = "replace"
    assert engine.run(cut(events[change:], positions)) == [oracle.arrive(event) for event in events[change:]]


def check_bounds(wanted, found, exact):
    """Check features against those of a run that has kept every event raw."""
    for at, each in enumerate(wanted):
        if f"f{at}" not in found.results:
            continue
        (value, count, fired), true = found.results[f"f{at}"], exact.results[f"f{at}"]
        lower, upper, is_exact, is_certain, fewest, most = found.bounds[f"f{at}"]
        assert fired
        has_none = each.operation in RANKS  # of no events; others are 0 then
        assert lower <= true.value <= upper or (has_none and not true.count), each
        assert lower <= value <= upper or (has_none and not count), each
        assert fewest <= true.count <= most
        assert fewest <= count <= most
        if is_exact or is_certain:
            assert (value, count) == (lower, fewest) == (upper, most) == true[:2]


@settings(max_examples=examples(60))
@given(
    wanted_features(),
    feature_streams(overflowing=False, repeating=False),
    LATENESS,
    st.sampled_from(["add", "drop"]),
    precisions(),
    st.integers(5, 60),
    pagings(),
    cuts(),
)
def test_the_true_value_lies_within_the_bounds_where_the_tail_was_made_longer(
    wanted, events, lateness_ms, late, precision, change, paging, positions
):
    policies = {"allowed_lateness": f"{lateness_ms}ms", "late": late}
    engine = FeatureEngine(wanted, paging, precision=precision, **policies)
    before = cut(events[:change], positions)
    found = engine.run(before)
    engine.settings(precision={"tail": "all"}, **policies)
    found += engine.run(cut(events[change:], positions))
    kept = FeatureEngine(wanted, paging, **policies).run([events])
    for outcome, exact in zip(found, kept, strict=True):
        check_bounds(wanted, outcome, exact)


# Worked out by hand: three events in the bucket [10, 20), written under a tail of 0 ms; then all events are kept.
#
#     amounts   5   1   3             2
#     ok        0   1   0             1
#     ms       12  14  18            30

OLD = [(12, "5.00", 7, 0), (14, "1.00", 7, 1), (18, "3.00", 8, 0), (25, "0.00", 0, 0)]


def after_old_events(*wanted: Wanted, at_ms: int = 30, old=OLD, ok: int = 1):
    """Results and bounds of an event after events of which the first were folded into buckets."""
    engine = FeatureEngine(list(wanted), allowed_lateness="0ms", precision={"tail": "0ms", "resolution": "10ms"})
    engine.run(
        [[Event(f"e{at}", at, "k", (Decimal(amount), Decimal(fee), Decimal(one)))] for at, amount, fee, one in old]
    )
    engine.settings(allowed_lateness="0ms", precision={"tail": "all"})
    (outcome,) = engine.run([[Event("new", at_ms, "k", (Decimal("2.00"), Decimal(9), Decimal(ok)))]])
    names = [f"f{at}" for at in range(len(wanted))]
    return [(tuple(map(int, outcome.results[name][:2])), tuple(map(int, outcome.bounds[name]))) for name in names]


def test_of_a_bucket_in_the_window_the_first_event_is_any_of_its_events():
    found = after_old_events(
        Wanted("FIRST", length_ms=20),
        Wanted("FIRST_TIME", length_ms=20),
        Wanted("FIRST", counted="ok", length_ms=20),
        Wanted("FIRST", length_ms=5),
    )
    assert found == [
        ((500, 1), (100, 500, False, False, 1, 1)),
        ((18, 1), (12, 18, False, False, 1, 1)),
        ((500, 1), (100, 500, False, False, 1, 1)),
        ((0, 1), (0, 0, True, True, 1, 1)),
    ]


def test_of_a_bucket_in_the_window_the_previous_event_is_any_of_its_events():
    counted = Wanted("PREVIOUS", counted="ok", length_ms=20)
    found = after_old_events(counted, counted._replace(operation="PREVIOUS_TIME"), Wanted("PREVIOUS", length_ms=20))
    assert found == [
        ((500, 1), (100, 500, False, False, 1, 1)),
        ((18, 1), (12, 18, False, False, 1, 1)),
        ((0, 1), (0, 0, True, True, 1, 1)),
    ]


def test_events_of_a_bucket_may_all_be_different_or_all_have_a_known_value():
    found = after_old_events(
        Wanted("COUNT_DISTINCT", length_ms=20),
        Wanted("COUNT_DISTINCT", "fee", length_ms=20),
        Wanted("COUNT_DISTINCT", "fee", "amount", "ok", length_ms=20),
        Wanted("COUNT_DISTINCT", "fee", "amount", length_ms=5),
    )
    assert found == [
        ((5, 5), (2, 5, False, False, 5, 5)),
        ((5, 5), (2, 5, False, False, 5, 5)),
        ((2, 2), (1, 2, False, False, 2, 2)),
        ((2, 2), (2, 2, True, True, 2, 2)),
    ]


def test_at_least_one_value_is_there_where_an_event_counts():
    counted = Wanted("COUNT_DISTINCT", counted="ok", length_ms=20)
    both_count = [(12, "5.00", 7, 1), (14, "1.00", 7, 1), (25, "0.00", 0, 0)]
    assert after_old_events(counted, old=both_count, ok=0) == [((2, 2), (1, 2, False, False, 2, 2))]


def test_where_the_edge_lies_in_a_bucket_the_window_holds_its_last_event_and_maybe_others():
    found = after_old_events(
        Wanted("FIRST", length_ms=15),
        Wanted("FIRST_TIME", length_ms=15),
        Wanted("FIRST", counted="ok", length_ms=15),
        Wanted("PREVIOUS", counted="ok", length_ms=15),
        Wanted("PREVIOUS_TIME", counted="ok", length_ms=15),
        Wanted("PREVIOUS", length_ms=15),
        Wanted("COUNT_DISTINCT", length_ms=15),
        Wanted("COUNT_DISTINCT", counted="ok", length_ms=15),
    )
    assert found == [
        ((500, 1), (100, 500, False, False, 1, 1)),
        ((18, 1), (12, 18, False, False, 1, 1)),
        ((500, 1), (100, 500, False, False, 1, 1)),  # of the bucket, or the event itself
        ((500, 1), (0, 500, False, False, 0, 1)),
        ((18, 1), (0, 18, False, False, 0, 1)),
        ((0, 1), (0, 0, True, True, 1, 1)),
        ((5, 5), (2, 5, False, False, 2, 5)),
        ((2, 2), (1, 2, False, False, 1, 2)),
    ]


def test_the_previous_event_of_an_uncertain_window_is_in_the_bucket_if_there_is_no_other():
    (found,) = after_old_events(Wanted("PREVIOUS", length_ms=15), old=[(2, "7.00", 1, 0), *OLD[:3]])
    assert found == ((300, 1), (300, 300, True, True, 1, 1))
    (found,) = after_old_events(Wanted("PREVIOUS", length_ms=15), old=[*OLD[:3], (30, "4.00", 1, 0)])
    assert found == ((400, 1), (400, 400, True, True, 1, 1))


# Plans and pages


def test_the_features_of_rules_have_no_second_column_and_count_all_events():
    features = Engine(rules_for([Wanted("FIRST")])[1:3]).plan.feature_arrays
    assert features.second.tolist() == features.counted.tolist() == [-1, -1]
    assert features.parameter.tolist() == [0, 0]
    arrays = (features.second, features.counted, features.parameter)
    assert {array.dtype for array in arrays} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        ([Wanted("FIRST")], FIRST_CELL + FIRST_VALUE),
        ([Wanted("FIRST_TIME"), Wanted("PREVIOUS_TIME")], FIRST_CELL + CELL_BEFORE),
        ([Wanted("PREVIOUS"), Wanted("PREVIOUS")], CELL_BEFORE + FIRST_VALUE),
        ([Wanted("FIRST", counted="ok")], EVERY_CELL),
        ([Wanted("PREVIOUS_TIME", counted="ok")], EVERY_CELL),
        ([Wanted("COUNT_DISTINCT"), Wanted("PREVIOUS")], EVERY_CELL + CELL_BEFORE + FIRST_VALUE),
        *(([Wanted(name)], EVERY_CELL) for name in RANKS),
    ],
)
def test_a_window_reads_the_cells_that_its_functions_need_and_others_read_none(wanted, read):
    plan = FeatureEngine([*wanted, Wanted("FIRST", length_ms=50)]).plan
    reads = cells_read_of(plan.feature_arrays, plan.windows)
    read_of = dict(zip(plan.windows.reach_ms.tolist(), reads.tolist(), strict=True))
    assert read_of == {1: 0, 10: read, 25: 0, 50: FIRST_CELL + FIRST_VALUE, 100: 0}


def pages_read(wanted: Wanted, times_ms: range, late: str = "add") -> list[int]:
    """How many pages each batch of one event reads."""
    engine = FeatureEngine([wanted], Paging(4, 4, 64), allowed_lateness="100ms", late=late)
    read, score = [], engine.pages

    class Counted(dict):
        def __getitem__(self, page):
            read[-1] += 1
            return super().__getitem__(page)

    engine.pages = Counted(score)
    for at in times_ms:
        read.append(0)
        engine.run([[Event(f"e{at}", at, "k", (Decimal(at), Decimal(0), Decimal(1)))]])
    return read[len(read) // 2 :]


def test_only_functions_that_need_all_events_read_all_pages_of_their_window():
    times_ms = range(0, 500, 2)
    least, every = max(pages_read(Wanted("SUM", length_ms=200), times_ms)), 200 // 2 // 4
    assert max(pages_read(Wanted("PREVIOUS", length_ms=200), times_ms)) == least
    assert least <= max(pages_read(Wanted("FIRST", length_ms=200), times_ms)) <= least + 2
    assert min(pages_read(Wanted("COUNT_DISTINCT", length_ms=200), times_ms)) >= every - 2
    assert min(pages_read(Wanted("PREVIOUS", counted="ok", length_ms=200), times_ms)) >= every - 2


@pytest.mark.parametrize("at_ms", [4_000, 2_000, 1_500])
def test_the_event_before_one_that_becomes_the_first_of_the_head_or_of_a_page_is_read_from_the_page_before(at_ms):
    """No window's edge lies in that page."""
    policies = {"allowed_lateness": "1m", "late": "evaluate", "collision": "replace"}
    engine = FeatureEngine([Wanted("PREVIOUS", length_ms=10_000)], Paging(2, 1, 64), **policies)
    events = [Event(f"e{at}", at, "k", (Decimal(at), Decimal(0), Decimal(1))) for at in range(0, 5_000, 1_000)]
    engine.run([[event] for event in events])
    assert [(cell.first_ms, cell.page) for cell in engine.view("k").cells] == [
        (0, 0), (1_000, 0), (2_000, 1), (3_000, 1), (4_000, None)
    ]  # fmt: skip
    (outcome,) = engine.run([[events[0]._replace(event_id="new", time_ms=at_ms)]])
    value = Decimal((at_ms - 1) // 1_000 * 100_000)
    assert outcome.results["f0"] == (value, 1, True)
    assert outcome.bounds["f0"] == (value, value, True, True, 1, 1)


# Long windows


@pytest.mark.parametrize("different", [3, 40_000])
def test_many_different_values_come_and_go(different):
    """Tables grow within a batch, and late events have them built again."""
    random = np.random.default_rng(7)
    times_ms = np.arange(6_000) * 2
    times_ms[random.random(6_000) < 0.01] -= 501
    amounts, fees, counts = (
        random.integers(-different, different, 6_000),
        random.integers(0, 2, 6_000),
        np.arange(6_000) % 2,
    )
    events = [
        Event(f"e{number}", int(at), "k", (Decimal(int(amount)), Decimal(int(fee)), Decimal(int(ok))))
        for number, (at, amount, fee, ok) in enumerate(zip(times_ms, amounts, fees, counts, strict=True))
    ]
    wanted = [
        Wanted("COUNT_DISTINCT", length_ms=5_000),
        Wanted("COUNT_DISTINCT", "amount", "fee", "ok", length_ms=3_000),
        Wanted("COUNT_DISTINCT", "fee", length_ms=10),
    ]
    engine = FeatureEngine(wanted, PAGING, allowed_lateness="10s", late="evaluate")
    found = engine.run([events[:2_500], events[2_500:2_600], events[2_600:]])
    for number in [*range(0, 6_000, 97), *(np.flatnonzero(times_ms % 2)).tolist()]:
        at, seen = times_ms[number], slice(number + 1)
        for name, each in enumerate(wanted):
            inside = (times_ms[seen] >= at - each.length_ms) & (times_ms[seen] <= at)
            if each.counted:
                inside &= counts[seen] == 1
            columns = {"amount": amounts, "fee": fees}
            values = [columns[measure][seen][inside].tolist() for measure in (each.measure, each.second) if measure]
            expected = len(set(zip(*values, strict=True))), int(inside.sum())
            assert found[number].results[f"f{name}"][:2] == expected

"""Percentiles, the median and the mode of a window, against a loop over a list."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.kernel.ranked_values import new_ranked_values
from buckets.kernel.score import PAGING
from buckets.rules.rule import Rule
from tests.core.test_single_events import COLLISION, LATE, LATENESS, after_old_events, check, check_bounds
from tests.engine import cut
from tests.features import RANKS, FeatureEngine, FeatureOracle, Wanted, feature_streams, wanted_features, with_tenths
from tests.laws import examples
from tests.oracle import Event
from tests.strategies import cuts, pagings, precisions

LEAST, GREATEST = -(2**63), 2**63 - 1


@settings(max_examples=examples(1000))
@given(wanted_features(names=RANKS), feature_streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_they_equal_a_loop_over_a_list(wanted, events, lateness_ms, late, collision, paging, positions):
    check(wanted, events, lateness_ms, late, collision, paging, positions)


@settings(max_examples=examples(60))
@given(
    wanted_features(names=RANKS),
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
    found = engine.run(cut(events[:change], positions))
    engine.settings(precision={"tail": "all"}, **policies)
    found += engine.run(cut(events[change:], positions))
    kept = FeatureEngine(wanted, paging, **policies).run([events])
    for outcome, exact in zip(found, kept, strict=True):
        check_bounds(wanted, outcome, exact)


def event(at: int, amount: int, fee: int, ok: int = 1, time_ms: int | None = None) -> Event:
    """An event; its amount is scaled."""
    cents = Decimal(amount).scaleb(-2)
    return Event(f"e{at}", at if time_ms is None else time_ms, "k", (cents, Decimal(fee), Decimal(ok)))


@settings(max_examples=examples(40))
@given(
    st.lists(st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, GREATEST - 1, GREATEST]), min_size=1, max_size=12),
    st.integers(1, 10_000),
    cuts(),
)
def test_values_at_the_ends_of_64_bits_are_exact(fees, hundredths, positions):
    wanted = [Wanted(name, "fee", length_ms=length, hundredths=hundredths) for name in RANKS for length in (1, 5, 100)]
    check(wanted, [event(at, 0, fee) for at, fee in enumerate(fees)], 0, "add", "keep", PAGING, positions)


def test_the_median_of_the_least_and_the_greatest_is_half_of_minus_one():
    engine = FeatureEngine([Wanted("MEDIAN", "fee", length_ms=5)], PAGING)
    found = engine.run([[event(0, 0, LEAST), event(1, 0, GREATEST), event(2, 0, GREATEST)]])
    values = [outcome.results["f0"].value for outcome in found]
    assert values == [LEAST, Decimal("-0.5"), GREATEST]


@pytest.mark.parametrize(
    ("hundredths", "nth"),
    [(1, 1), (1_000, 1), (1_001, 2), (5_000, 5), (5_001, 6), (9_000, 9), (9_001, 10), (10_000, 10)],
)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(hundredths, nth):
    engine = FeatureEngine([Wanted("PERCENTILE", length_ms=100, hundredths=hundredths)], PAGING)
    found = engine.run([[event(at, amount, 0) for at, amount in enumerate([7, 3, 10, 1, 9, 2, 8, 6, 5, 4])]])
    assert found[-1].results["f0"][:2] == (nth, 10)


def test_of_several_most_frequent_values_the_mode_is_the_one_that_came_last():
    engine = FeatureEngine([Wanted("MODE", length_ms=5)], PAGING)
    found = engine.run([[event(at, amount, 0) for at, amount in enumerate([3, 5, 3, 5, 9, -1, -1, 8, 7, 6, 20])]])
    values = [int(outcome.results["f0"].value) for outcome in found]
    assert values == [3, 5, 3, 5, 5, 5, -1, -1, -1, -1, -1]


# Features of the same values share a table.


def test_percentiles_and_the_median_of_the_same_values_share_a_table_and_modes_have_their_own():
    wanted = [
        Wanted("PERCENTILE", hundredths=9_500),
        Wanted("MEDIAN"),
        Wanted("MODE"),
        Wanted("MEDIAN", length_ms=25),
        Wanted("MEDIAN", counted="ok"),
        Wanted("MODE"),
        Wanted("PERCENTILE", "fee"),
        Wanted("COUNT_DISTINCT"),
    ]
    plan = FeatureEngine(wanted, PAGING).plan
    found = new_ranked_values(plan.feature_arrays, 100, np.zeros((3, 0), np.int64), np.zeros((3, 0), np.bool_))
    table = {rule.rule_id: int(number) for rule, number in zip(plan.rules, found.table, strict=True)}
    tables = [table[f"f{at}"] for at in range(len(wanted))]
    assert tables[0] == tables[1]
    assert tables[2] == tables[5]
    assert len({*tables[:5], tables[6]}) == 5
    assert tables[7] == -1
    assert len(found.value) == 5
    others = [number for name, number in table.items() if not name.startswith("f")]
    assert set(others) == {-1}


# Worked out by hand, see `after_old_events`: amounts 5, 1 and 3 of one bucket, then 0 at 25 ms and 2 at 30 ms.


def test_of_a_bucket_in_the_window_the_least_and_the_greatest_value_are_bounds():
    found = after_old_events(
        *(Wanted(name, length_ms=20) for name in RANKS),
        *(Wanted(name, counted="ok", length_ms=20) for name in RANKS),
        Wanted("MEDIAN", length_ms=5),
    )
    assert found == [
        ((0, 5), (0, 500, False, False, 5, 5)),
        ((100, 5), (0, 500, False, False, 5, 5)),
        ((200, 5), (0, 500, False, False, 5, 5)),
        *[((200, 2), (100, 500, False, False, 2, 2))] * 3,
        ((100, 2), (100, 100, True, True, 2, 2)),
    ]


def test_where_no_event_that_counts_is_known_the_value_is_the_greatest_there_may_be():
    wanted = [Wanted(name, counted="ok", length_ms=20) for name in RANKS]
    assert after_old_events(*wanted, ok=0) == [((500, 1), (100, 500, False, False, 1, 1))] * 3


def test_where_the_edge_lies_in_a_bucket_its_events_may_count():
    wanted = [Wanted(name, counted="ok", length_ms=15) for name in RANKS]
    assert after_old_events(*wanted) == [((200, 1), (100, 500, False, False, 1, 2))] * 3


def test_where_no_event_surely_counts_there_is_no_value_and_the_bounds_are_those_of_the_bucket():
    wanted = [Wanted(name, counted="ok", length_ms=15) for name in RANKS]
    assert after_old_events(*wanted, ok=0) == [((0, 0), (100, 500, False, False, 0, 1))] * 3


# Long windows


@pytest.mark.slow
@pytest.mark.parametrize("different", [3, 40_000])
def test_ten_thousand_events_in_the_window(different):
    """Late events have values counted again, and some of them reach back to values that were not known."""
    random = np.random.default_rng(7)
    count = 14_000
    times_ms = np.arange(count) * 2
    times_ms[random.random(count) < 0.003] -= 501
    amounts = random.integers(-different, different, count)
    counts = np.arange(count) % 2
    events = [
        event(number, int(amount), 0, int(ok), int(at))
        for number, (at, amount, ok) in enumerate(zip(times_ms, amounts, counts, strict=True))
    ]
    wanted = [
        Wanted("PERCENTILE", length_ms=20_000, hundredths=9_500),
        Wanted("MEDIAN", length_ms=20_000),
        Wanted("MODE", length_ms=20_000),
        Wanted("MEDIAN", counted="ok", length_ms=3_000),
        Wanted("MODE", counted="ok", length_ms=10),
    ]
    engine = FeatureEngine(wanted, PAGING, allowed_lateness="10s", late="evaluate")
    found = engine.run([events[:9_000], events[9_000:9_005], events[9_005:13_000], events[13_000:]])
    for number in [*range(0, count, 197), *(np.flatnonzero(times_ms % 2)).tolist()]:
        at, seen = times_ms[number], slice(number + 1)
        for name, each in enumerate(wanted):
            inside = (times_ms[seen] >= at - each.length_ms) & (times_ms[seen] <= at)
            if each.counted:
                inside &= counts[seen] == 1
            in_order = np.argsort(times_ms[seen][inside], kind="stable")
            values = amounts[seen][inside][in_order]
            expected = of_values(each, values), len(values)
            assert found[number].results[f"f{name}"][:2] == expected


def of_values(wanted: Wanted, in_order: np.ndarray) -> Decimal:
    """A function over values in the order of time; 0 of none."""
    values = np.sort(in_order)
    if not len(values):
        return Decimal(0)
    if wanted.operation == "MEDIAN":
        twice = int(values[(len(values) - 1) // 2] + values[len(values) // 2])
        return with_tenths(twice // 2, twice % 2 * 500_000)
    if wanted.operation == "MODE":
        different, often = np.unique(values, return_counts=True)
        most = different[often == often.max()]
        return Decimal(int(in_order[np.flatnonzero(np.isin(in_order, most))[-1]]))
    return Decimal(int(values[-(-len(values) * wanted.hundredths // 10_000) - 1]))


def test_many_keys_of_one_batch_do_not_share_their_values():
    random = np.random.default_rng(3)
    events = [
        event(number, int(random.integers(-5, 5)), 0)._replace(key=f"k{random.integers(0, 40)}")
        for number in range(400)
    ]
    wanted = [Wanted(name, length_ms=100) for name in RANKS]
    engine = FeatureEngine(wanted, PAGING)
    oracle = FeatureOracle.of(wanted, lateness_ms=0, late="add", collision="keep", precision={"tail": "all"})
    assert engine.run([events[:150], events[150:]]) == [oracle.arrive(each) for each in events]


# In rules


def feature_of(**written):
    feature = {"function": "percentile", "of": "amount", "window": "1h", "p": 95} | written
    feature = {name: value for name, value in feature.items() if value is not None}
    return {"rule_id": "r", "group_by": ["payer"], "features": {"f": feature}, "when": "f > 1"}


@pytest.mark.parametrize("p", [0, -1, 100.01, "0.001", 99.999, True, "much", "", [], "nan", "1e999999999"])
def test_a_percentile_is_of_more_than_0_and_up_to_100_per_cent_with_two_digits_after_the_point(p, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Rule.model_validate(feature_of(p=p))


def test_a_percentile_needs_p_and_others_have_none(as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Rule.model_validate(feature_of(p=None))
    for function in ("median", "mode", "sum"):
        with pytest.raises(ValueError, check=as_worded):
            Rule.model_validate(feature_of(function=function))
        assert "p" not in Rule.model_validate(feature_of(function=function, p=None)).model_dump()["features"]["f"]


@pytest.mark.parametrize(
    ("p", "phrase"),
    [
        (95, "95th"),
        ("50.0", "50th"),
        (1, "1st"),
        (11, "11th"),
        (22, "22nd"),
        (93, "93rd"),
        (99.9, "99.9th"),
        (100, "100th"),
    ],
)
def test_a_percentile_in_english_and_as_it_is_written(p, phrase):
    rule = Rule.model_validate(feature_of(p=p))
    assert rule.sentence().endswith(f"f is the {phrase} percentile of amount over the last 1h")
    assert rule.model_dump(mode="json")["features"]["f"]["p"] == str(p)
    assert Rule.model_validate(rule.model_dump(mode="json")) == rule


def test_the_median_and_the_mode_in_english():
    for function, phrase in (("median", "the median of amount"), ("mode", "the most frequent amount")):
        sentence = Rule.model_validate(feature_of(function=function, p=None)).sentence()
        assert sentence.endswith(f"f is {phrase} over the last 1h")


def test_percentiles_of_different_per_cent_are_different_parts():
    parts = [
        part
        for p in (50, 95, "95.00")
        for each in Rule.model_validate(feature_of(p=p)).named_features()
        for _, part in each.parts()
    ]
    assert [part.parameter for part in parts] == [5_000, 9_500, 9_500]
    assert len(set(parts)) == 2

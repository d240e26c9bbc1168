"""Versions of the rules: groups, columns that never move, and since when each track is complete."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.rules.completeness import ALWAYS_MS
from buckets.rules.group import COUNT_TRACK, group_id
from buckets.rules.rule_set import RuleSet, first_rule_set, next_rule_set
from tests.core.examples import rule, since, until
from tests.laws import examples

HOUR_MS = 3_600_000
LIMITS = st.one_of(
    st.integers(-(2**70), 2**70).map(str).filter(lambda text: len(text) < 20),
    st.decimals(-(10**6), 10**6, places=6).map(lambda value: format(value, "f")),
    st.sampled_from(["9223372036854775807", "-0.000001", "1e3", "1E+15", "0"]),
)
MEASURES = ["amount", "fee", "tip"]


@st.composite
def rules(draw, rule_id: str = "r"):
    measure = draw(st.sampled_from([None, *MEASURES]))
    function = draw(st.sampled_from(["sum", "avg", "min", "max"])) if measure else "count"
    where = {"kind": draw(st.sampled_from(["a", ["b", "a"]])), "amount": {">": "1"}} if draw(st.booleans()) else {}
    return rule(
        rule_id,
        aggregate={"function": function, "measure": measure},
        group_by=draw(st.sampled_from([["payer"], ["payer", "kind"], ["kind", "payer"], []])),
        window={
            "length": draw(st.sampled_from(["1ms", "1h", "25h", "30d"])),
            "left": draw(st.sampled_from(["closed", "open"])),
        },
        limit={"operator": draw(st.sampled_from([">", "!=", "="])), "value": draw(LIMITS)},
        state=draw(st.sampled_from(["ACTIVE", "SHADOW", "PAUSE", "DELETE"])),
        where=where,
        version=draw(st.integers(1, 3)),
        description=draw(st.text(max_size=5)),
    )


@st.composite
def rule_lists(draw):
    return [draw(rules(f"r{index}")) for index in range(draw(st.integers(0, 5)))]


@st.composite
def histories(draw):
    """Rule sets one after the other, with the clock and the rules of each step."""
    lateness_ms = draw(st.sampled_from([0, 1000]))
    versions, clock_ms = [first_rule_set(draw(rule_lists()))], None
    for _ in range(draw(st.integers(0, 4))):
        step = draw(st.one_of(st.none(), st.integers(0, 10**10)))
        clock_ms = clock_ms if step is None else (clock_ms or 0) + step
        versions.append(next_rule_set(versions[-1], draw(rule_lists()), until(clock_ms), lateness_ms))
    return versions


@settings(max_examples=examples(200))
@given(histories())
def test_a_rule_set_comes_back_from_its_json_as_it_was(versions):
    for rule_set in versions:
        assert RuleSet.from_json(rule_set.to_json()) == rule_set


@pytest.mark.parametrize("limit", ["1e19", "-1e25", "12e30"])
def test_a_limit_with_an_exponent_comes_back_from_json(limit):
    rule_set = first_rule_set([rule(limit={"operator": ">", "value": limit})])
    assert RuleSet.from_json(rule_set.to_json()).rules == rule_set.rules


@given(histories())
def test_versions_are_numbered_from_1(versions):
    assert [rule_set.version for rule_set in versions] == list(range(1, len(versions) + 1))


@given(rule_lists())
def test_each_rule_that_is_not_deleted_is_in_the_group_of_its_fields_and_filter(each):
    groups = first_rule_set(each).groups
    grouped = [one for group in groups for one in group.rules]
    assert sorted(one.rule_id for one in grouped) == [one.rule_id for one in each if one.state != "DELETE"]
    for group in groups:
        assert {(frozenset(one.group_by), one.where) for one in group.rules} == {(frozenset(group.fields), group.where)}
        assert [each.index(one) for one in group.rules] == sorted(each.index(one) for one in group.rules)
    assert len({(frozenset(group.fields), group.where) for group in groups}) == len(groups)


@given(histories())
def test_columns_of_a_group_are_only_appended_to(versions):
    for before, after in pairwise(versions):
        layouts = {group.group_id: group.measures for group in before.groups}
        for group in after.groups:
            kept = layouts.get(group.group_id, ())
            assert group.measures[: len(kept)] == kept
            assert {one.measure for one in group.rules} - {None} <= set(group.measures)


@given(histories())
def test_every_track_that_a_rule_reads_says_since_when_it_is_complete(versions):
    for rule_set in versions:
        for group in rule_set.groups:
            assert {one.measure or COUNT_TRACK for one in group.rules} <= set(group.complete)


@given(rule_lists())
def test_fields_of_rules_that_are_not_deleted_are_needed(each):
    live = [one for one in each if one.state != "DELETE"]
    expected = {field for one in live for field in one.group_by}
    expected |= {one.aggregate.measure for one in live if one.aggregate.function != "count"}
    assert first_rule_set(each).needed_fields == expected
    named = expected | {condition.field for one in live for condition in one.where}
    assert first_rule_set(each).named_fields == named


def test_a_group_is_known_by_its_fields_and_filter_for_ever():
    assert group_id(["b", "a"], ()) == group_id(["a", "b"], ()) == "763ba4f58254b95f"
    where = rule(where={"kind": ["b", "a"], "amount": {">": "1"}}).where
    assert group_id(["a"], where) == "baac55821747f9f8"


# Since when a track is complete: the clock stands at 10 h, lateness is 1 h.

CLOCK_MS, LATENESS_MS = 10 * HOUR_MS, HOUR_MS
NEXT_MS = CLOCK_MS + 1


def tracks_of(*versions, clock_ms: int | None = CLOCK_MS) -> dict[str, int | None]:
    """Tracks of the last version's only group; each version comes an hour after the one before."""
    rule_set = first_rule_set(versions[0])
    for step, each in enumerate(versions[1:]):
        moment = None if clock_ms is None else clock_ms + step * HOUR_MS
        rule_set = next_rule_set(rule_set, each, until(moment), LATENESS_MS)
    (group,) = rule_set.groups
    return since(group)


def test_the_first_rules_are_complete_from_the_first_event_on():
    assert tracks_of([rule("a"), rule("b", "fee")]) == {"": None, "amount": None, "fee": None}


def test_rules_that_change_before_the_first_event_are_complete():
    assert tracks_of([rule("a")], [rule("a", length="2h"), rule("b", "fee")], clock_ms=None) == {
        "": None, "amount": None, "fee": None,
    }  # fmt: skip


def test_a_new_group_is_complete_after_the_latest_event():
    after = next_rule_set(
        first_rule_set([rule("a")]), [rule("a"), rule("b", group_by=["kind"])], until(CLOCK_MS), LATENESS_MS
    )
    old, new = after.groups
    assert (since(old), since(new)) == (
        {"": None, "amount": None},
        {"": NEXT_MS, "amount": NEXT_MS},
    )


def test_a_new_measure_is_complete_after_the_latest_event_and_the_old_ones_stay_so():
    assert tracks_of([rule("a")], [rule("a"), rule("b", "fee")]) == {"": None, "amount": None, "fee": NEXT_MS}


def test_a_new_rule_on_a_measure_that_is_kept_is_complete():
    assert tracks_of([rule("a")], [rule("a"), rule("b", length="30m"), rule("c", None)]) == {"": None, "amount": None}


def test_a_longer_window_is_complete_as_far_back_as_the_old_horizon_reached():
    reach_ms = CLOCK_MS - HOUR_MS - LATENESS_MS
    assert tracks_of([rule("a")], [rule("a"), rule("b", length="5h")]) == {"": reach_ms, "amount": reach_ms}


def test_a_window_that_was_shortened_and_lengthened_again_reaches_back_as_the_short_one_did():
    short = (rule("a", length="1h"),)
    found = tracks_of([rule("a", length="5h")], short, [rule("a", length="5h")])
    reach_ms = CLOCK_MS + HOUR_MS - HOUR_MS - LATENESS_MS
    assert found == {"": reach_ms, "amount": reach_ms}


def test_a_track_younger_than_the_old_horizon_stays_as_young_when_the_window_grows():
    found = tracks_of([rule("a")], [rule("a"), rule("b", "fee")], [rule("a", length="9h"), rule("b", "fee")])
    reach_ms = CLOCK_MS + HOUR_MS - HOUR_MS - LATENESS_MS
    assert found == {"": reach_ms, "amount": reach_ms, "fee": max(reach_ms, NEXT_MS)}


def test_a_measure_that_was_removed_and_comes_back_begins_anew():
    both = [rule("a"), rule("b", "fee")]
    assert tracks_of(both, [rule("a")], both) == {"": None, "amount": None, "fee": CLOCK_MS + HOUR_MS + 1}


def test_a_group_that_was_removed_and_comes_back_begins_anew():
    versions = [first_rule_set([rule("a")])]
    for step, each in enumerate(([rule("b", group_by=["kind"])], [rule("a")])):
        versions.append(next_rule_set(versions[-1], each, until(CLOCK_MS + step * HOUR_MS), LATENESS_MS))
    (group,) = versions[-1].groups
    assert since(group) == {"": CLOCK_MS + HOUR_MS + 1, "amount": CLOCK_MS + HOUR_MS + 1}


def test_a_deleted_rule_keeps_no_track_and_a_paused_one_does():
    both = [rule("a"), rule("b", "fee")]
    paused = [rule("a"), rule("b", "fee", state="PAUSE")]
    deleted = [rule("a"), rule("b", "fee", state="DELETE")]
    assert tracks_of(both, paused, both)["fee"] is None
    assert tracks_of(both, deleted, both)["fee"] == CLOCK_MS + HOUR_MS + 1


def test_a_group_that_was_removed_and_comes_back_keeps_its_columns():
    versions = [first_rule_set([rule("a"), rule("b", "fee")])]
    for each in ([rule("c", group_by=["kind"])], [rule("b", "fee")]):
        versions.append(next_rule_set(versions[-1], each, until(CLOCK_MS), LATENESS_MS))
    (group,) = versions[-1].groups
    assert group.measures == ("amount", "fee")


# Generations: a group that goes and comes again is another one.


@given(histories())
def test_the_generation_of_a_group_is_the_version_in_which_it_came_to_be(versions):
    before: dict[str, int] = {}
    for rule_set in versions:
        generations = {group.group_id: group.generation for group in rule_set.groups}
        assert generations == {each: before.get(each, rule_set.version) for each in generations}
        before = generations


def test_a_group_whose_rules_change_stays_the_same_and_one_that_comes_back_does_not():
    versions = [first_rule_set([rule("a"), rule("b", group_by=["kind"])])]
    for each in ([rule("c", length="2h")], [rule("c"), rule("b", group_by=["kind"])], [rule("d", "fee")]):
        versions.append(next_rule_set(versions[-1], each, until(CLOCK_MS), LATENESS_MS))
    found = [{group.fields[0]: group.generation for group in rule_set.groups} for rule_set in versions]
    assert found == [{"payer": 1, "kind": 1}, {"payer": 1}, {"payer": 1, "kind": 3}, {"payer": 1}]


def test_a_group_whose_rules_are_all_deleted_is_gone_and_one_that_is_paused_is_not():
    for state, generation in (("DELETE", 3), ("PAUSE", 1)):
        rule_set = first_rule_set([rule("a")])
        for each in ([rule("a", state=state)], [rule("a")]):
            rule_set = next_rule_set(rule_set, each, until(CLOCK_MS), LATENESS_MS)
        assert [group.generation for group in rule_set.groups] == [generation]


def test_steps_are_read_as_they_were_written():
    arrived = (*until(CLOCK_MS), *until(CLOCK_MS + 10**12))
    after = next_rule_set(first_rule_set([rule("a")]), [rule("a"), rule("b", "fee")], arrived, LATENESS_MS)
    (group,) = after.groups
    assert group.complete["fee"] == ((ALWAYS_MS, NEXT_MS), (CLOCK_MS + 10**12 - LATENESS_MS, NEXT_MS + 10**12))
    assert RuleSet.from_json(after.to_json()) == after

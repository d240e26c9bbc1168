"""What becomes of a rule set when changes are made to it, against a dictionary to which they are made too."""

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buckets.feeds.rules.rule_book import NO_RULES
from buckets.rules.change import RuleChange, changes_between, key_of, parse_change
from buckets.rules.revision import NOTHING_GONE, Revision, deleted, revise
from buckets.rules.rule import LARGEST_VERSION, Rule
from buckets.rules.rule_set import RuleSet, first_rule_set
from tests.core.examples import SCHEMA, rule, since, until

IDS = ("a", "b", "c")
STATES = ("ACTIVE", "SHADOW", "PAUSE")
CLOCK_MS, LATENESS_MS = 10_000_000, 0


def revised(
    before: RuleSet, *asked: RuleChange, clock_ms: int | None = CLOCK_MS, gone: Mapping[str, int] = NOTHING_GONE
) -> Revision:
    return revise(before, asked, SCHEMA, until(clock_ms), LATENESS_MS, gone)


rules = st.builds(
    rule,
    st.sampled_from(IDS),
    measure=st.sampled_from(["amount", "fee", None]),
    length=st.sampled_from(["1h", "2h"]),
    group_by=st.sampled_from([["payer"], ["kind"], ["payer", "kind"]]),
    state=st.sampled_from((*STATES, "DELETE")),
    version=st.integers(1, 4),
)
bad_rules = st.builds(rule, st.sampled_from(IDS), group_by=st.just(["nobody"]))
puts = st.builds(RuleChange, change=st.just("put"), rule=rules)
bad_puts = st.builds(RuleChange, change=st.just("put"), rule=bad_rules)
others = st.one_of(
    st.builds(RuleChange, change=st.just("state"), rule_id=st.sampled_from(IDS), state=st.sampled_from(STATES)),
    st.builds(RuleChange, change=st.just("delete"), rule_id=st.sampled_from(IDS)),
    st.builds(RuleChange, change=st.just("clear_state"), rule_id=st.sampled_from(IDS)),
    st.sampled_from([RuleChange(change=kind) for kind in ("clear_all_state", "delete_all", "export")]),
)
changes = st.lists(st.one_of(puts, puts, bad_puts, others), max_size=15)


def definition(each: Rule) -> Rule:
    return each.model_copy(update={"version": 1})


def modelled(asked: Iterable[RuleChange]) -> dict[str, Rule]:
    """The definitions that are left, as a dictionary would have them."""
    left: dict[str, Rule] = {}
    for change in asked:
        subject = change.subject
        if change.change == "put" and "nobody" not in change.rule.group_by:
            left[subject] = definition(change.rule)
        elif change.change == "state" and subject in left:
            left[subject] = left[subject].model_copy(update={"state": change.state})
        elif change.change == "delete":
            left.pop(subject, None)
        elif change.change == "delete_all":
            left.clear()
        if subject in left and left[subject].state == "DELETE":
            del left[subject]
    return left


def definitions(rule_set: RuleSet) -> dict[str, Rule]:
    return {each.rule_id: definition(each) for each in rule_set.rules}


# Laws


@given(changes)
def test_any_changes_leave_the_rules_that_a_dictionary_would_have(asked):
    assert definitions(revised(NO_RULES, *asked).rule_set) == modelled(asked)


@given(changes, st.integers(0, 15))
def test_changes_may_come_at_once_or_one_after_another(asked, cut):
    first = revised(NO_RULES, *asked[:cut])
    second = revised(first.rule_set, *asked[cut:], gone=deleted(first.made))
    at_once = revised(NO_RULES, *asked)
    assert second.rule_set.rules == at_once.rule_set.rules
    assert first.made + second.made == at_once.made
    assert first.refused + second.refused == at_once.refused


@given(changes)
def test_the_version_of_a_rule_never_goes_down_while_it_is_there(asked):
    rule_set = NO_RULES
    for change in asked:
        before = {each.rule_id: each for each in rule_set.rules}
        rule_set = revised(rule_set, change).rule_set
        for each in rule_set.rules:
            if each.rule_id in before and definition(each) != definition(before[each.rule_id]):
                assert each.version > before[each.rule_id].version
            elif each.rule_id in before:
                assert each.version >= before[each.rule_id].version


@given(changes)
@example([RuleChange(change="put", rule=rule("a", version=2)), RuleChange(change="delete", rule_id="a")] * 2)
def test_a_version_of_a_rule_is_one_definition_for_ever_and_versions_only_go_up(asked):
    latest: dict[str, Rule] = {}
    for change in revised(NO_RULES, *asked).made:
        if change.after is None or change.rule_id is None:
            continue
        before = latest.get(change.rule_id)
        if before is not None and change.change in ("put", "state"):
            assert change.after.version > before.version
        latest[change.rule_id] = change.after


@given(changes)
def test_what_is_refused_changes_nothing_and_a_change_is_made_refused_or_idle(asked):
    rule_set = NO_RULES
    for change in asked:
        revision = revised(rule_set, change)
        assert not (revision.refused and revision.made)
        if not revision.made:
            assert revision.rule_set is rule_set
        else:
            assert revision.rule_set.version == rule_set.version + 1
        rule_set = revision.rule_set


@given(changes)
def test_history_replayed_gives_the_rules(asked):
    revision = revised(NO_RULES, *asked)
    left: dict[str, Rule] = {}
    for change in revision.made:
        if change.rule_id is not None:
            assert change.before == left.get(change.rule_id)
            left.pop(change.rule_id, None)
            if change.after is not None:
                left[change.rule_id] = change.after
                assert change.rule_version == change.after.version
    assert left == {each.rule_id: each for each in revision.rule_set.rules}


@given(st.lists(st.one_of(puts, others), max_size=15), st.integers(0, 15))
def test_a_log_has_the_same_rules_after_it_was_compacted_up_to_anywhere(asked, cut):
    """Compaction keeps the last message of each key up to some offset, and all after it."""
    log = [(key_of(change), change.to_json()) for change in asked]
    head, rest = log[:cut], log[cut:]
    compacted = [(key, value) for at, (key, value) in enumerate(head) if key not in {k for k, _ in head[at + 1 :]}]

    def replayed(messages: list[tuple[str, str]]) -> dict[str, Rule]:
        read = [parse_change(key, value, "t@0", None) for key, value in messages]
        return definitions(revised(NO_RULES, *read).rule_set)

    assert replayed(compacted + rest) == replayed(log)


@given(st.lists(rules, max_size=3, unique_by=lambda each: each.rule_id), changes)
def test_applied_twice_is_applied_once(wanted, before):
    there = revised(NO_RULES, *before).rule_set
    asked = [RuleChange(change="put", rule=each) for each in wanted]
    once = revised(there, *asked)
    twice = revised(once.rule_set, *asked)
    assert twice.rule_set is once.rule_set
    assert twice.made == twice.refused == []
    assert revised(once.rule_set, *changes_between(once.rule_set.rules, once.rule_set.rules)).made == []


# Clearing


A, B, C = rule("a"), rule("b", "fee"), rule("c", group_by=["kind"])


def test_clearing_a_rule_begins_its_group_anew_and_no_other():
    before = first_rule_set([A, B, C])
    after = revised(before, RuleChange(change="clear_state", rule_id="b")).rule_set
    payer, kind = after.groups
    assert (payer.generation, kind.generation) == (2, 1)
    assert set(since(payer).values()) == {CLOCK_MS + 1}
    assert set(since(kind).values()) == {None}
    assert after.rules == before.rules


def test_clearing_all_begins_every_group_anew():
    revision = revised(first_rule_set([A, B, C]), RuleChange(change="clear_all_state"))
    assert [group.generation for group in revision.rule_set.groups] == [2, 2]
    assert [(change.change, change.rule_id) for change in revision.made] == [("clear_all_state", None)]


@given(st.lists(st.sampled_from(IDS), max_size=3))
def test_the_groups_that_are_cleared_are_those_of_the_rules_that_were_named(named):
    asked = [RuleChange(change="clear_state", rule_id=rule_id) for rule_id in named]
    after = revised(first_rule_set([A, B, C]), *asked).rule_set
    expected = [2 if {"a", "b"} & set(named) else 1, 2 if "c" in named else 1]
    assert [group.generation for group in after.groups] == expected


def test_a_group_is_cleared_whatever_else_changes_with_it():
    put = RuleChange(change="put", rule=rule("d", length="9h"))
    clear = RuleChange(change="clear_state", rule_id="a")
    for asked in ([put, clear], [clear, put]):
        (group,) = revised(first_rule_set([A]), *asked).rule_set.groups
        assert group.generation == 2
        assert set(since(group).values()) == {CLOCK_MS + 1}


# Cases


def test_a_changed_rule_keeps_its_position_and_gets_the_next_version():
    revision = revised(first_rule_set([A, C]), RuleChange(change="put", rule=rule("a", length="3h")))
    assert [(each.rule_id, each.version) for each in revision.rule_set.rules] == [("a", 2), ("c", 1)]
    (made,) = revision.made
    assert (made.before, made.after.version, made.rule_version) == (A, 2, 2)


def test_a_change_is_called_by_what_it_does():
    """A paused rule is put as a whole into a topic, and still it was paused."""
    for asked, kind in (
        (RuleChange(change="put", rule=rule("a", state="PAUSE")), "state"),
        (RuleChange(change="state", rule_id="a", state="PAUSE"), "state"),
        (RuleChange(change="put", rule=rule("a", state="PAUSE", length="3h")), "put"),
        (RuleChange(change="put", rule=rule("a", version=9)), "put"),
        (RuleChange(change="put", rule=rule("a", state="DELETE")), "delete"),
        (RuleChange(change="delete_all"), "delete"),
    ):
        assert [made.change for made in revised(first_rule_set([A]), asked).made] == [kind]


def test_a_higher_version_that_a_message_names_is_kept():
    revision = revised(first_rule_set([A]), RuleChange(change="put", rule=rule("a", length="3h", version=7)))
    assert revision.rule_set.rules[0].version == 7


def test_a_version_that_no_output_could_hold_is_refused(as_worded):
    for there, put in ((1, LARGEST_VERSION + 1), (LARGEST_VERSION, 1)):
        before = first_rule_set([rule("a", version=there)])
        revision = revised(before, RuleChange(change="put", rule=rule("a", length="3h", version=put)))
        assert revision.rule_set is before
        assert as_worded(revision.refused[0].reason)


@pytest.mark.parametrize("kind", ["state", "clear_state"])
def test_a_rule_that_is_not_there_is_refused_with_those_that_are(kind, as_worded):
    state = "PAUSE" if kind == "state" else None
    asked = RuleChange(change=kind, rule_id="x", state=state, origin="t@9")
    revision = revised(first_rule_set([rule(f"r{number:02d}") for number in range(12)]), asked)
    (refusal,) = revision.refused
    assert refusal.origin == "t@9"
    assert as_worded(refusal.reason)
    assert json.loads(refusal.raw)["rule_id"] == "x"


def test_what_is_gone_may_be_deleted_again():
    """A message without a value follows a deletion, to free the topic of it."""
    revision = revised(first_rule_set([A]), *[RuleChange(change="delete", rule_id="a")] * 2)
    assert (len(revision.made), revision.refused) == (1, [])
    assert revision.rule_set.rules == ()


def test_a_rule_that_does_not_fit_the_schema_is_refused(as_worded):
    revision = revised(NO_RULES, RuleChange(change="put", rule=rule(group_by=["nobody"])))
    assert as_worded(revision.refused[0].reason)


# Filters


SPELLINGS = ({"fee": 100}, {"fee": "100.00"}, {"fee": ["1e2"]}, {"fee": {"in": ["+100", "0100"]}})


@given(st.permutations(SPELLINGS), st.integers(1, 4))
def test_one_filter_is_one_group_with_one_timeline_whichever_rule_comes_first(spellings, cut):
    puts = [
        RuleChange(change="put", rule=rule(name, where=where)) for name, where in zip("abcd", spellings, strict=True)
    ]
    first = revised(NO_RULES, *puts[:cut]).rule_set
    second = revised(first, *puts[cut:]).rule_set
    assert [group.group_id for group in second.groups] == [group.group_id for group in first.groups]
    assert len(second.groups) == 1
    assert revised(second, *puts).made == []
    read_again = RuleSet.from_json(second.to_json())
    assert read_again.groups == second.groups


def test_an_export_is_asked_for_and_changes_nothing():
    before = first_rule_set([A])
    assert revised(before, RuleChange(change="export")) == Revision(before, [], [], True)

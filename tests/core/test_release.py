"""Releases of rules: steps forward, the way back to an earlier version, differences, and drafts, which do nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.feeds.rules.rule_book import NO_RULES
from buckets.rule_files.differences import rules_that_differ
from buckets.rules.change import RuleChange
from buckets.rules.revision import deleted, promoted, rollback, same_definition, stage
from buckets.rules.rule import WHOLE_SHARE, policy_sentence
from buckets.rules.rule_set import RuleSet, first_rule_set, group_changes
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline
from tests.core.test_revision import changes, definition, definitions, revised
from tests.core.test_warmth import payment
from tests.laws import examples

# The way back


def versions_of(steps: list[list[RuleChange]]) -> tuple[list[RuleSet], dict[str, int]]:
    """All versions of the rules that changes lead to, and the last version of each rule that is gone."""
    found, gone = [NO_RULES], {}
    for asked in steps:
        revision = revised(found[-1], *asked, gone=gone)
        gone |= deleted(revision.made)
        if revision.made:
            found.append(revision.rule_set)
    return found, gone


@given(st.lists(changes, min_size=1, max_size=5), st.data())
def test_a_rollback_gives_the_definitions_of_the_version_and_numbers_go_on(steps, data):
    versions, gone = versions_of(steps)
    then, now = data.draw(st.sampled_from(versions)), versions[-1]
    asked = rollback(now.rules, then.rules, SCHEMA, author="ann", reason="rollback to version 1")
    revision = revised(now, *asked, gone=gone)
    assert revision.refused == []
    assert definitions(revision.rule_set) == definitions(then)
    assert len(revision.made) == len(asked)
    assert (not asked) == (definitions(now) == definitions(then))
    used = {each.rule_id: each.version for each in now.rules} | {
        rule_id: version for rule_id, version in gone.items() if rule_id not in {each.rule_id for each in now.rules}
    }
    for change in revision.made:
        assert (change.author, change.reason) == ("ann", "rollback to version 1")
        if change.after is not None:
            assert change.after.version > used.get(change.rule_id, 0)
    assert rollback(revision.rule_set.rules, then.rules, SCHEMA) == []


def test_filters_that_are_written_otherwise_are_no_difference():
    there = rule("a", where="fee = 100.0")
    then = rule("a", where={"fee": "1e2"}, version=4)
    assert same_definition(then, there, SCHEMA)
    assert rollback([there], [then], SCHEMA) == []
    (change,) = rollback(
        [there], [then.model_copy(update={"limit": rule(limit={"operator": ">", "value": 7}).limit})], SCHEMA
    )
    assert change.rule.where == there.where


# Differences


COUNTERPARTS = {
    "begins": "goes",
    "goes": "begins",
    "starts again": "starts again",
    "grows": "shrinks",
    "shrinks": "grows",
    "keeps more": "keeps less",
    "keeps less": "keeps more",
}
"""What each effect on a group is when it is looked at from the other side."""


def mirrored(found):
    return [
        (each.rule_id, each.after, each.before, [(field.name, field.after, field.before) for field in each.fields])
        for each in found
    ]


@given(st.lists(changes, min_size=1, max_size=4), st.data())
def test_a_version_does_not_differ_from_itself_and_differences_are_antisymmetric(steps, data):
    versions, _ = versions_of(steps)
    one, other = data.draw(st.sampled_from(versions)), data.draw(st.sampled_from(versions))
    assert rules_that_differ(one.rules, one.rules) == group_changes(one, one) == []
    forth, back = rules_that_differ(one.rules, other.rules), rules_that_differ(other.rules, one.rules)
    plain = [
        (each.rule_id, each.before, each.after, [(field.name, field.before, field.after) for field in each.fields])
        for each in forth
    ]
    assert plain == mirrored(back)
    assert (not forth) == (definitions(one) == definitions(other))
    effects = {(each.group_id, COUNTERPARTS[each.effect]) for each in group_changes(one, other)}
    assert effects == {(each.group_id, each.effect) for each in group_changes(other, one)}


def test_what_becomes_of_groups():
    before = first_rule_set([rule("a"), rule("b", group_by=["kind"], length="2h"), rule("c", group_by=["account"])])
    put = [rule("a", "fee", length="3h"), rule("b", group_by=["kind"]), rule("d", group_by=["payer", "kind"])]
    asked = [RuleChange(change="put", rule=each) for each in put]
    after = revised(before, *asked, RuleChange(change="delete", rule_id="c")).rule_set
    assert [(each.name, each.effect) for each in group_changes(before, after)] == [
        ("payer", "grows"),
        ("payer", "keeps more"),
        ("payer", "keeps less"),
        ("kind", "shrinks"),
        ("account", "goes"),
        ("payer, kind", "begins"),
    ]
    cleared = revised(after, RuleChange(change="clear_state", rule_id="a")).rule_set
    assert [(each.name, each.effect) for each in group_changes(after, cleared)] == [("payer", "starts again")]


# Steps


def test_a_rule_goes_through_all_steps():
    draft = rule("a", state="DRAFT")
    trial = promoted(draft)
    part = promoted(trial, rollout=1000)
    more = promoted(part, rollout=2500)
    whole = promoted(more)
    assert list(map(stage, (draft, trial, part, more, whole))) == [
        "DRAFT", "SHADOW", "ACTIVE with rollout 10%", "ACTIVE with rollout 25%", "ACTIVE",
    ]  # fmt: skip
    assert definition(whole) == rule("a")


def test_a_rule_on_trial_keeps_the_rollout_that_it_names():
    assert stage(promoted(rule(state="SHADOW", rollout="5%"))) == "ACTIVE with rollout 5%"
    assert promoted(rule(state="SHADOW", rollout="5%"), rollout=WHOLE_SHARE) == rule()
    assert promoted(rule(state="DRAFT"), "ACTIVE") == rule()


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (rule(), {}),
        (rule(state="PAUSE"), {}),
        (rule(rollout="10%"), {"to": "SHADOW"}),
        (rule(state="SHADOW"), {"to": "SHADOW"}),
        (rule(rollout="10%"), {"rollout": 1000}),
        (rule(state="DRAFT"), {"rollout": 1000}),
    ],
)
def test_there_is_no_such_step(there, asked, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        promoted(there, **asked)


# Drafts


@settings(deadline=None, max_examples=examples(20))
@given(st.sampled_from([[], [rule("a")], [rule("a"), rule("b", "fee", group_by=["kind"])]]), st.integers(1, 5))
def test_a_draft_is_known_and_nothing_else(others, events):
    drafts = [rule("draft", length="30d", group_by=["account"]), rule("other", "fee", length="90d")]
    drafts = [each.model_copy(update={"state": "DRAFT"}) for each in drafts]
    with_drafts, without = first_rule_set([*drafts, *others]), first_rule_set(others)
    assert with_drafts.rules[:2] == tuple(drafts)
    assert with_drafts.groups == without.groups
    assert with_drafts.needed_fields == without.needed_fields
    assert with_drafts.named_fields == without.named_fields
    assert RuleSet.from_json(with_drafts.to_json()) == with_drafts
    jobs = [Pipeline(rule_set, SCHEMA) for rule_set in (with_drafts, without)]
    for job in jobs:
        # A null in a field that only a draft groups by makes no dead letter of an event.
        job.batch([[payment(number, number, "p") | {"account": None} for number in range(events)]])
    assert jobs[0].found == jobs[1].found
    assert jobs[0].timelines == jobs[1].timelines


def test_a_draft_that_names_a_field_that_is_not_there_is_refused(as_worded):
    revision = revised(NO_RULES, RuleChange(change="put", rule=rule(group_by=["nobody"], state="DRAFT")))
    assert as_worded(revision.refused[0].reason)


def test_there_is_nothing_to_clear_of_a_draft_though_its_group_is_that_of_another_rule(as_worded):
    before = first_rule_set([rule("a"), rule("b", state="DRAFT")])
    revision = revised(before, RuleChange(change="clear_state", rule_id="b"))
    assert revision.rule_set is before
    assert as_worded(revision.refused[0].reason)


# Words


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({}, ""),
        ({"severity": "high", "score": 1200, "tags": ["mule"]}, "Severity high, score 1,200, tag mule."),
        ({"tags": ["a", "b"]}, "Tags a, b."),
        ({"cooldown": "1h"}, "At most one alert per payer in 1h."),
        ({"cooldown": "90s", "group_by": []}, "At most one alert in 90s."),
        ({"cooldown": "7d", "group_by": ["payer", "kind"]}, "At most one alert per payer and kind in 7d."),
        (
            {"reset_on_alert": True, "require_warm": True},
            "Counts from the start again after an alert. No alert before its windows are complete.",
        ),
        ({"rollout": "0.5%", "on": "alerts"}, "It counts alerts, not events. Alerts for 0.5% of keys."),
        (
            {"effective": {"from": "2026-01-01", "until": "2026-02-01T10:00:30+01:00"}},
            "In effect from 2026-01-01 00:00 until 2026-02-01 09:00:30, by the time of events.",
        ),
        (
            {"snoozes": [{"key": {"payer": "p"}, "until": "2026-01-01", "reason": "pay\nday"}]},
            "Snoozed for payer p until 2026-01-01 00:00 (pay\\nday).",
        ),
        (
            {"snoozes": [{"from": "2025-12-01", "until": "2026-01-01", "reason": "x"}] * 5},
            "Snoozed for all keys from 2025-12-01 00:00 until 2026-01-01 00:00 (x). " * 3 + "2 more snoozes.",
        ),
    ],
)
def test_the_policy_of_a_rule_in_words(policy, said):
    assert policy_sentence(rule(**policy)) == said

"""The part of a backfill that concerns rules: which groups are filled from the archive, and how a fill ends.

    asked     a rule in force whose groups have not seen everything in the archive
    filling   the group is evaluated as before, while new timelines are filled under a separate identity
    complete  the group switches to these, as if its rules had existed since the beginning of the archive

A fill ends early if none of the rules that asked for it is evaluated any more, or its group restarts. It starts over if
the group needs something that the fill did not collect: a track, a longer window, another policy.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from buckets.events.schema import EventSchema
from buckets.rules.completeness import ALWAYS_MS, FROM_THE_FIRST, Completeness, Fill, at
from buckets.rules.group import Group, used_tracks
from buckets.rules.renaming import renamed_rule
from buckets.rules.revision import Change, Revision, same_definition
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class Wanted:
    """A rule whose history is asked for."""

    rule: Rule  # the rule as it must be in force
    complete: Completeness | None  # since when the archive is complete; None: since the first event of the job
    author: str  # who asked
    reason: str  # why
    time: int  # when, in ms since the epoch


@dataclass
class Backfill:
    """Moves fills from one batch to the next."""

    rule_set: RuleSet  # the rules in force, with the groups of complete fills gone over to what has been filled
    taken: list[Wanted]  # the requests that need not be asked again
    _before: RuleSet
    _whole: set[str]

    @classmethod
    def of(cls, before: RuleSet, done: Collection[int], can_fill: bool) -> "Backfill":
        """Begin with the rules in force and the numbers of complete fills; without an archive all other fills end."""
        rule_set = completed(before, done)
        if rule_set.fills and not can_fill:
            rule_set = replace(rule_set, fills=())
        whole = {rule_id for fill in before.fills if fill.number in done for rule_id in fill.rule_ids}
        return cls(rule_set, [], before, whole)

    def go_on(self, revision: Revision, wanted: Iterable[Wanted], batch_id: int, schema: EventSchema) -> Revision:
        """Return a revision of `rule_set` with its fills as they are from the first batch that it evaluates.

        A wanted rule that is not in force as requested has to wait.
        """
        rule_set = refitted(self.rule_set, revision.rule_set, batch_id)
        rules = {rule.rule_id: rule for rule in rule_set.rules}
        for each in wanted:
            there = rules.get(each.rule.rule_id)
            asked = renamed_rule(each.rule, schema.new_names)
            if there is None or not same_definition(there, asked, schema):
                continue
            self.taken.append(each)
            filling = begun(rule_set, each, batch_id)
            if filling is not rule_set:
                rule_set = filling
                revision.made.append(_made("backfill", there, each))
        unfinished = {rule_id for fill in rule_set.fills for rule_id in fill.rule_ids}
        whole = sorted(self._whole - unfinished)
        revision.made += [_made("backfilled", rules[rule_id]) for rule_id in whole if rule_id in rules]
        if rule_set is not self._before and rule_set.version == self._before.version:
            rule_set = replace(rule_set, version=rule_set.version + 1)
        revision.rule_set = rule_set
        return revision


def _made(what: Literal["backfill", "backfilled"], rule: Rule, wanted: Wanted | None = None) -> Change:
    author, reason, time = ("", "", None) if wanted is None else (wanted.author, wanted.reason, wanted.time)
    return Change(what, rule.rule_id, rule.version, rule, rule, author, reason, time, "archive")


def completed(rule_set: RuleSet, done: Collection[int]) -> RuleSet:
    """Return the rule set with the groups of complete fills switched to the filled timelines."""
    whole = {fill.group_id: fill for fill in rule_set.fills if fill.number in done}
    if not whole:
        return rule_set
    by_group = {fill.group_id: rule_set.filling[fill.number] for fill in whole.values()}
    groups = tuple(by_group.get(group.group_id, group) for group in rule_set.groups)
    return replace(rule_set, groups=groups, fills=tuple(fill for fill in rule_set.fills if fill.number not in done))


def refitted(before: RuleSet, after: RuleSet, batch_id: int) -> RuleSet:
    """Return a rule set with those fills of the previous one that still fit."""
    if not after.fills:
        return after
    evaluated = {rule.rule_id for rule in after.rules if rule.is_evaluated}
    old, new = ({group.group_id: group for group in rules.groups} for rules in (before, after))
    fills, begun = [], after.fills_begun
    for fill in after.fills:
        group, asking = new[fill.group_id], tuple(each for each in fill.rule_ids if each in evaluated)
        if not asking or group.generation != old[fill.group_id].generation:
            continue
        if _is_enough(old[fill.group_id], group):
            fills.append(replace(fill, rule_ids=asking))
        else:
            begun += 1
            fills.append(replace(fill, number=begun, rule_ids=asking, first_batch=batch_id))
    return after if tuple(fills) == after.fills else replace(after, fills=tuple(fills), fills_begun=begun)


def _is_enough(old: Group, new: Group) -> bool:
    """Return whether timelines filled for a group are also right under its new rules."""
    tracks = set(new.live_tracks) <= set(old.live_tracks)
    return tracks and new.longest_window_ms <= old.longest_window_ms and _remembering(new) == _remembering(old)


def _remembering(group: Group) -> tuple[Rule, ...]:
    """Return the rules of a group that keep state besides its timelines."""
    return tuple(rule for rule in group.rules if rule.reset_on_alert or rule.rule_id in group.policies)


def begun(rule_set: RuleSet, wanted: Wanted, batch_id: int) -> RuleSet:
    """Return a rule set in which the groups of a wanted rule, which is in force, are filled from a batch on.

    Groups that have seen the whole archive, or are being filled already, stay unchanged.
    """
    groups = {group.group_id: group for group in rule_set.groups}
    fills = {fill.group_id: fill for fill in rule_set.fills}
    number = rule_set.fills_begun
    for identity in dict.fromkeys(rule_set.identities(wanted.rule)):
        if identity in fills:
            known = fills[identity]
            rule_ids = tuple(dict.fromkeys((*known.rule_ids, wanted.rule.rule_id)))
            fills[identity] = replace(known, rule_ids=rule_ids)
        elif identity in groups and gains(wanted.rule, groups[identity], wanted.complete):
            number += 1
            fills[identity] = Fill(number, identity, (wanted.rule.rule_id,), batch_id, wanted.complete)
    if fills == {fill.group_id: fill for fill in rule_set.fills}:
        return rule_set
    return replace(rule_set, fills=tuple(fills.values()), fills_begun=number)


def gains(rule: Rule, group: Group, complete: Completeness | None) -> bool:
    """Return whether a rule gains from an archive complete since then, and no other rule of the group loses."""
    mine = _first_ms(group.completeness(*used_tracks((rule,), group.fields)))
    archived = ALWAYS_MS if complete is None else _first_ms(complete)
    others = [_first_ms(group.completeness(*used_tracks((each,), group.fields))) for each in group.rules]
    return mine > archived and all(each >= archived for each in others)


def _first_ms(complete: Completeness) -> int:
    """Return since when events are complete, ignoring wild dates."""
    return ALWAYS_MS if complete == FROM_THE_FIRST else at(complete, ALWAYS_MS)

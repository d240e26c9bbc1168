"""A rule set: an immutable, numbered version of all rules, and the groups they fall into.

Rules over alerts have separate groups, whose timelines hold alerts and live on the driver. They form a nested rule set,
`over_alerts`, so that code for groups of events does not see them.
"""

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import msgspec

from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.rules.completeness import Completeness, Fill, Stretches, complete_behind, earlier_from, later
from buckets.rules.feature import ALERT_FIELDS
from buckets.rules.group import COUNT_TRACK, Group, group_id, used_tracks
from buckets.rules.prepared import PreparedRules, prepare
from buckets.rules.role import asks_alerts, fields_of
from buckets.rules.rule import Rule
from buckets.rules.written_lists import linked


@dataclass(frozen=True)
class RuleSet:
    """One version of all rules."""

    version: int  # its number
    rules: tuple[Rule, ...]  # all rules, over events and over alerts
    groups: tuple[Group, ...]  # the groups of events
    # the value columns of all groups that ever existed: the timelines of a group that is gone may still be there
    columns: dict[str, tuple[str, ...]]
    alert_groups: tuple[Group, ...] = ()  # the groups of alerts
    fills: tuple[Fill, ...] = ()  # the groups of events that are being filled from the archive
    fills_begun: int = 0  # the number of the last fill that was ever begun; 0: none was
    # by field, the name that it had first, where it has got another one; groups and their keys go by it
    first_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def evaluated(self) -> tuple[Rule, ...]:
        """All rules in their evaluated form, where features replace lookups in lists that rules write."""
        return linked(self.rules)

    @cached_property
    def filling(self) -> dict[int, Group]:
        """By the number of a fill, its group as it will be when complete."""
        groups = {group.group_id: group for group in self.groups}
        return {
            fill.number: replace(
                groups[fill.group_id],
                timelines=fill.timelines,
                complete=dict.fromkeys(groups[fill.group_id].complete, fill.complete),
            )
            for fill in self.fills
        }

    @cached_property
    def over_alerts(self) -> "RuleSet | None":
        """The rules over alerts as a separate rule set, for which alerts are events; None if there are none."""
        if not self.alert_groups:
            return None
        rules = tuple(rule for rule in self.rules if rule.on == "alerts")
        return RuleSet(self.version, rules, self.alert_groups, self.columns, first_names=self.first_names)

    @cached_property
    def asking_alerts(self) -> "RuleSet | None":
        """The rules over events with features over alerts, and all groups that they need; None if none."""
        asked = tuple(group for group in self.alert_groups if asks_alerts(group.fields))
        if not asked:
            return None
        rules = tuple(rule for rule in self.evaluated if rule.asks_alerts)
        return RuleSet(self.version, rules, (*self.groups, *asked), self.columns, first_names=self.first_names)

    @cached_property
    def needs_driver_state(self) -> bool:
        """Whether batches need state on the driver from earlier ones."""
        return bool(self.alert_groups) or any(group.policies and group.spanning_rules for group in self.groups)

    @cached_property
    def needed_fields(self) -> frozenset[str]:
        """Fields that live rules over events group by or aggregate: an event with a null in one is malformed."""
        return frozenset().union(*(group.needed_fields for group in self.groups))

    @cached_property
    def named_fields(self) -> frozenset[str]:
        """Event fields that live rules, also over alerts, group by, filter on or aggregate."""
        rules = [rule for group in (*self.groups, *self.alert_groups) for rule in group.rules]
        of_alerts = frozenset().union(*(group.named_fields for group in self.alert_groups))
        named = self.needed_fields.union(of_alerts, *(rule.filter_fields for rule in rules))
        return named.difference(ALERT_FIELDS) if self.alert_groups else named

    @cached_property
    def read_fields(self) -> frozenset[str]:
        """Fields to read of an event with known keys: for features, filters, conditions and other groups."""
        rules = [rule for group in self.groups for rule in group.rules]
        of = {named.feature.of for rule in rules for named in rule.named_features() if named.feature.of is not None}
        spanning = [rule for group in self.groups for rule in group.spanning_rules]
        keys = (fields_of(fields) for rule in spanning for fields, _ in rule.groupings())
        return frozenset(of).union(*keys, *(rule.filter_fields for rule in rules))

    @cached_property
    def spanning_rules(self) -> dict[tuple[str, ...], PreparedRules]:
        """The rules with features of several groups, by these groups, starting with that of their own key."""
        found: dict[tuple[str, ...], list[Rule]] = {}
        here = {rule.rule_id for group in self.groups for rule in group.spanning_rules}
        known = {group.group_id for group in self.groups}
        for rule in self.evaluated:
            identities = tuple(self.identities(rule)) if rule.rule_id in here else ()
            if identities and known.issuperset(identities):
                found.setdefault(identities, []).append(rule)
        return {identities: prepare(rules) for identities, rules in found.items()}

    def identities(self, rule: Rule) -> list[str]:
        """Return the identities of the groups that a rule needs, starting with that of its own key."""
        return [group_id(fields, where, rule.on, self.first_names) for fields, where in rule.groupings()]

    def to_json(self) -> str:
        """Return the rule set as text for `from_json`, cached, since every batch asks for it."""
        return self._text

    @cached_property
    def _text(self) -> str:
        groups = (*self.groups, *self.alert_groups)
        record = _Record(
            self.version,
            [rule.model_dump(by_alias=True, mode="json") for rule in self.rules],
            self.columns,
            {group.group_id: group.complete for group in groups},
            {group.group_id: group.generation for group in groups},
            {group.group_id: group.timelines for group in groups if group.timelines},
            self.fills,
            self.fills_begun,
            dict(self.first_names),
        )
        return msgspec.json.encode(record).decode()

    @classmethod
    def from_json(cls, text: str) -> "RuleSet":
        """Parse the text of `to_json`."""
        return cls.from_record(msgspec.json.decode(text))

    @classmethod
    def from_record(cls, data: Mapping[str, Any]) -> "RuleSet":
        """Build a rule set from the parsed text of `to_json`."""
        record = msgspec.convert(data, _Record)
        rules = tuple(Rule.model_validate(rule) for rule in record.rules)
        groups = [
            replace(
                group,
                measures=record.columns[identity],
                complete=record.complete_since_ms[identity],
                generation=record.generations[identity],
                timelines=record.timelines.get(identity, ""),
            )
            for identity, group in _groups(rules, record.first_names).items()
        ]
        of_events, of_alerts = (tuple(group for group in groups if group.on == on) for on in ("events", "alerts"))
        begun, first_names = record.fills_begun, record.first_names
        return cls(record.version, rules, of_events, record.columns, of_alerts, record.fills, begun, first_names)


class _Record(msgspec.Struct, omit_defaults=True):
    """A rule set as JSON; groups follow from the rules, and their other data is stored by group id."""

    version: int
    rules: list[dict[str, Any]]
    columns: dict[str, tuple[str, ...]]
    complete_since_ms: dict[str, dict[str, Completeness | None]]
    generations: dict[str, int]
    timelines: dict[str, str] = {}
    fills: tuple[Fill, ...] = ()
    fills_begun: int = 0
    first_names: dict[str, str] = {}


def _groups(rules: Iterable[Rule], first_names: Mapping[str, str]) -> dict[str, Group]:
    """Return the groups of rules by id, without the data about their timelines."""
    groups: dict[str, Group] = {}
    for rule in linked(rules):
        for fields, where in rule.groupings() if rule.is_in_force else ():
            identity = group_id(fields, where, rule.on, first_names)
            on = "alerts" if asks_alerts(fields) else rule.on
            new = Group(identity, fields, where, (), (), {}, 0, on, first_names=first_names)
            there = groups.get(identity) or new
            groups[identity] = replace(there, rules=(*there.rules, rule))
    return groups


def first_rule_set(rules: Iterable[Rule]) -> RuleSet:
    """Return the rule set of a job before its first event."""
    return next_rule_set(RuleSet(0, (), (), {}), rules, arrived=(), lateness_ms=0)


def next_rule_set(
    before: RuleSet,
    rules: Iterable[Rule],
    arrived: Stretches,
    lateness_ms: int,
    is_cleared: Callable[[Group], bool] = lambda group: False,
) -> RuleSet:
    """Return the version of all rules that follows `before`.

    Args:
        before: the version in force until now.
        rules: all rules of the new version.
        arrived: the event times that have arrived.
        lateness_ms: the allowed lateness, which the horizon adds to the longest window.
        is_cleared: whether a group starts again, ignoring what its timelines hold.
    """
    ordered = tuple(rules)
    known = {group.group_id: group for group in (*before.groups, *before.alert_groups) if not is_cleared(group)}
    version, columns, groups = before.version + 1, dict(before.columns), []
    for identity, group in _groups(ordered, before.first_names).items():
        used, old = used_tracks(group.rules, group.fields), known.get(identity)
        columns[identity] = tuple(dict.fromkeys([*columns.get(identity, ()), *used]))
        groups.append(
            replace(
                group,
                measures=columns[identity],
                complete=_complete(old, group, arrived, lateness_ms),
                generation=version if old is None else old.generation,
                timelines="" if old is None else old.timelines,
            )
        )
    of_events, of_alerts = (tuple(group for group in groups if group.on == on) for on in ("events", "alerts"))
    kept = {group.group_id for group in of_events if group.group_id in known}
    fills = tuple(fill for fill in before.fills if fill.group_id in kept)
    begun, first_names = before.fills_begun, before.first_names
    return RuleSet(version, ordered, of_events, columns, of_alerts, fills, begun, first_names)


def with_lateness(before: RuleSet, version: int, arrived: Stretches, before_ms: int, now_ms: int) -> RuleSet:
    """Return the rule set of a job that continues with another allowed lateness.

    Timelines reach back by the smaller of both horizons. With a greater lateness, an event may be evaluated whose
    windows reach further back: they are not complete.
    """

    def complete(group: Group) -> dict[str, Completeness | None]:
        if not arrived or now_ms <= before_ms:
            return group.complete
        reach = complete_behind(arrived, -group.longest_window_ms - before_ms, now_ms)
        return {
            track: reach if kept is None else later(reach, earlier_from(kept, now_ms - before_ms))
            for track, kept in group.complete.items()
        }

    groups, alert_groups = (
        tuple(replace(group, complete=complete(group)) for group in groups)
        for groups in (before.groups, before.alert_groups)
    )
    return replace(before, version=version, groups=groups, alert_groups=alert_groups)


def _complete(old: Group | None, new: Group, arrived: Stretches, lateness_ms: int) -> dict[str, Completeness | None]:
    """Return the times from which the tracks of a group are complete under new rules."""
    begins = complete_behind(arrived, 1, lateness_ms) if arrived else None
    used = used_tracks(new.rules, new.fields)
    complete: dict[str, Completeness | None] = dict.fromkeys((COUNT_TRACK, *used), begins)
    if old is not None and arrived:
        grown = new.longest_window_ms > old.longest_window_ms
        reach = complete_behind(arrived, -old.longest_window_ms - lateness_ms, lateness_ms)
        for track in old.live_tracks:
            if track in complete:
                kept = old.complete[track]
                complete[track] = later(reach, kept or reach) if grown else kept
    return complete


LARGEST_BYTES = 10_000_000  # Bytes of the largest encoded rule set that is sent; measured, see DESIGN.md


@lru_cache(maxsize=4)
def _encoded(json_text: str) -> str:
    return base64.b64encode(zlib.compress(json_text.encode())).decode()


def encode_rule_set(rule_set: RuleSet) -> str:
    """Return a rule set as text; BucketsError if it is too large for a batch."""
    text = _encoded(rule_set.to_json())
    if len(text) > LARGEST_BYTES:
        message = (
            f"the rule set of {len(rule_set.rules)} rules takes {len(text):,} bytes, and a batch carries at most "
            f"{LARGEST_BYTES:,}; split the rules over several jobs"
        )
        raise BucketsError(message)
    return text


@lru_cache(maxsize=4)
def decode_rule_set(text: str) -> RuleSet:
    """Return a rule set from its text, cached by text."""
    return RuleSet.from_json(zlib.decompress(base64.b64decode(text)).decode())


Effect = Literal["begins", "goes", "starts again", "grows", "shrinks", "keeps more", "keeps less"]


@dataclass(frozen=True)
class GroupChange:
    """The effect of a change on a group."""

    group_id: str  # the group
    name: str  # the group in words
    effect: Effect  # what happens to it
    words: str  # the effect in English


def group_changes(before: RuleSet, after: RuleSet) -> list[GroupChange]:
    """Return the effect of a change on each group of a rule set, existing groups first."""
    old = {group.group_id: group for group in before.groups}
    new = {group.group_id: group for group in after.groups}
    return [
        GroupChange(identity, (old.get(identity) or new[identity]).name, effect, words)
        for identity in {**old, **new}
        for effect, words in _effects(old.get(identity), new.get(identity))
    ]


def _effects(old: Group | None, new: Group | None) -> Iterator[tuple[Effect, str]]:
    if old is None:
        assert new is not None
        yield "begins", f"begins empty, and reaches back {format_duration(new.longest_window_ms)} once it is complete"
        return
    if new is None:
        yield "goes", f"goes, with {format_duration(old.longest_window_ms)} of events that it keeps for each key"
        return
    if old.generation != new.generation:
        yield "starts again", "starts again: it has been away or was cleared in between, and begins empty"
        return
    before, after = (format_duration(group.longest_window_ms) for group in (old, new))
    if new.longest_window_ms > old.longest_window_ms:
        yield "grows", f"reaches back {after}, not {before}: what is older than {before} is missing until then"
    if new.longest_window_ms < old.longest_window_ms:
        yield "shrinks", f"reaches back {after}, not {before}: older events are evicted"
    more, less = _tracks(new, old), _tracks(old, new)
    if more:
        yield "keeps more", f"also keeps {more}, which begins empty"
    if less:
        yield "keeps less", f"keeps no {less} any more"


def _tracks(of: Group, without: Group) -> str:
    """Return what a group keeps of each event that the other group does not keep."""
    there = set(without.live_tracks)
    return ", ".join(track for track in of.live_tracks if track not in there and track != COUNT_TRACK)

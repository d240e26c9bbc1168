"""A rule set: an immutable, numbered version of all rules, and the groups they fall into.

A group is what several rules share: grouping fields and filter. Its timelines have one column of values for each
measure that any of its rules has ever used, in the order of first use. A column never moves, so that timelines
written under an earlier version stay readable. A *track* is one such column, or the bare count of events.

`complete` of a track says from which event time on its timelines hold every event. It is None for a track that has been
kept since the job's first event. A track that is new in a later version begins after the event times that had arrived
by then (see `arrived`); one whose horizon has grown reaches back as far as the old horizon did.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from buckets.events.schema import EventSchema
from buckets.printable import quoted
from buckets.rules.completeness import ALWAYS_MS, Completeness, Since, Stretches, complete_behind, later
from buckets.rules.filter import Filter, canonical_filter, describe_filter, filter_fields, filter_identity
from buckets.rules.rule import Rule

COUNT_TRACK = ""
"""Name of the track that holds no measure."""


@dataclass(frozen=True)
class Group:
    """The rules that share grouping fields and filter, and the layout of their timelines.

    Attributes:
        group_id: 16 hex digits, from fields and filter alone.
        fields: grouping fields as users see them, in the order of the first rule that named them.
        where: the filter.
        rules: the group's rules, in file order, without deleted ones.
        measures: the value columns of the group's timelines; only ever appended to.
        complete: by track, since when timelines are complete; None: since the first event.
        generation: version of the rule set in which the group was created. A group that goes and comes back is new,
            and ignores the timelines that the first has left. 0: before generations were counted.
    """

    group_id: str
    fields: tuple[str, ...]
    where: Filter
    rules: tuple[Rule, ...]
    measures: tuple[str, ...]
    complete: dict[str, Completeness | None]
    generation: int

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Grouping fields in the order in which keys are encoded: sorted, whatever order the rules name them in."""
        return tuple(sorted(self.fields))

    @property
    def live_tracks(self) -> tuple[str, ...]:
        """Tracks that some rule reads, the count first."""
        used = {rule.measure for rule in self.rules}
        return (COUNT_TRACK, *(measure for measure in self.measures if measure in used))

    @property
    def longest_window_ms(self) -> int:
        """The longest window of the group's rules, in ms."""
        return max(rule.window.length_ms for rule in self.rules)

    @property
    def name(self) -> str:
        """The group in words: its fields, and its filter if it has one."""
        return group_name(self.fields, self.where)


def group_name(fields: Iterable[str], where: Filter) -> str:
    """A group in words: its fields, and its filter if it has one."""
    names = ", ".join(map(quoted, fields)) or "all events"
    return f"{names} where {describe_filter(where)}" if where else names


def group_id(fields: Iterable[str], where: Filter) -> str:
    """The identity of a group: the same for the same fields, in any order, and the same filter."""
    canonical = json.dumps([sorted(fields), filter_identity(where)], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def canonical_group_id(fields: Iterable[str], where: Filter, schema: EventSchema) -> str:
    """The identity that a group has when its filter is written in the form of `canonical_filter`."""
    try:
        return group_id(fields, canonical_filter(where, schema))
    except ValueError:  # of another event schema
        return group_id(fields, where)


@dataclass(frozen=True)
class RuleSet:
    """One version of all rules."""

    version: int
    rules: tuple[Rule, ...]
    groups: tuple[Group, ...]
    columns: dict[str, tuple[str, ...]]
    """The value columns of all groups that ever existed: the timelines of a group that is gone may still be there."""

    @property
    def needed_fields(self) -> frozenset[str]:
        """Fields that some live rule groups by or aggregates: an event with a null in one is malformed."""
        rules = [rule for group in self.groups for rule in group.rules]
        fields = {field for rule in rules for field in rule.group_by}
        return frozenset(fields | {rule.measure for rule in rules if rule.measure is not None})

    @property
    def named_fields(self) -> frozenset[str]:
        """Fields that some live rule groups by, filters on or aggregates."""
        return self.needed_fields.union(*(filter_fields(group.where) for group in self.groups))

    def to_json(self) -> str:
        """The rule set as text, which `from_json` reads back; made once, since every batch asks for it."""
        return self._text

    @cached_property
    def _text(self) -> str:
        data = {
            "version": self.version,
            "rules": [rule.model_dump(by_alias=True, mode="json") for rule in self.rules],
            "columns": self.columns,
            "complete_since_ms": {
                group.group_id: {track: _written(complete) for track, complete in group.complete.items()}
                for group in self.groups
            },
            "generations": {group.group_id: group.generation for group in self.groups},
        }
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RuleSet":
        """Read what `to_json` wrote."""
        data = json.loads(text)
        rules = tuple(Rule.model_validate(rule) for rule in data["rules"])
        columns = {identity: tuple(measures) for identity, measures in data["columns"].items()}
        complete = {
            identity: {track: _read(written) for track, written in tracks.items()}
            for identity, tracks in data["complete_since_ms"].items()
        }
        return _assemble(data["version"], rules, columns, complete, data.get("generations", {}))


Written = int | list[list[int]] | None
"""Since when a track is complete, as JSON: for all events alike, or in steps."""


def _written(complete: Completeness | None) -> Written:
    if complete is None:
        return None
    return complete[0].since_ms if len(complete) == 1 else [list(since) for since in complete]


def _read(written: Written) -> Completeness | None:
    if written is None:
        return None
    return (Since(ALWAYS_MS, written),) if isinstance(written, int) else tuple(Since(*step) for step in written)


def _assemble(
    version: int,
    rules: tuple[Rule, ...],
    columns: dict[str, tuple[str, ...]],
    complete: dict[str, dict[str, Completeness | None]],
    generations: dict[str, int],
) -> RuleSet:
    groups = tuple(
        Group(
            group_id=identity,
            fields=members[0].group_by,
            where=members[0].where,
            rules=tuple(members),
            measures=columns[identity],
            complete=complete[identity],
            generation=generations.get(identity, 0),
        )
        for identity, members in _by_group(rules).items()
    )
    return RuleSet(version, rules, groups, columns)


def _by_group(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    grouped: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.state != "DELETE":
            grouped.setdefault(group_id(rule.group_by, rule.where), []).append(rule)
    return grouped


def first_rule_set(rules: Iterable[Rule]) -> RuleSet:
    """The rule set of a job that has seen no event."""
    return next_rule_set(RuleSet(0, (), (), {}), rules, arrived=(), lateness_ms=0)


def next_rule_set(
    before: RuleSet,
    rules: Iterable[Rule],
    arrived: Stretches,
    lateness_ms: int,
    is_cleared: Callable[[Rule], bool] = lambda rule: False,
) -> RuleSet:
    """The version that follows `before`.

    Args:
        before: the version in force until now.
        rules: all rules of the new version.
        arrived: the event times that have arrived.
        lateness_ms: the allowed lateness, which the horizon adds to the longest window.
        is_cleared: whether the group of a rule starts again, ignoring what its timelines hold.
    """
    ordered = tuple(rules)
    known = {group.group_id: group for group in before.groups if not any(map(is_cleared, group.rules))}
    version = before.version + 1
    columns, complete, generations = dict(before.columns), {}, {}
    for identity, members in _by_group(ordered).items():
        used = [rule.measure for rule in members if rule.measure is not None]
        columns[identity] = tuple(dict.fromkeys([*columns.get(identity, ()), *used]))
        complete[identity] = _complete(known.get(identity), members, arrived, lateness_ms)
        generations[identity] = known[identity].generation if identity in known else version
    return _assemble(version, ordered, columns, complete, generations)


def _complete(
    old: Group | None, rules: list[Rule], arrived: Stretches, lateness_ms: int
) -> dict[str, Completeness | None]:
    """Since when the tracks of a group are complete under new rules."""
    used = dict.fromkeys(rule.measure for rule in rules if rule.measure is not None)
    begins = complete_behind(arrived, 1, lateness_ms) if arrived else None
    complete: dict[str, Completeness | None] = dict.fromkeys((COUNT_TRACK, *used), begins)
    if old is not None and arrived:
        grown = max(rule.window.length_ms for rule in rules) > old.longest_window_ms
        reach = complete_behind(arrived, -old.longest_window_ms - lateness_ms, lateness_ms)
        for track in old.live_tracks:
            if track in complete:
                kept = old.complete[track]
                complete[track] = later(reach, kept or reach) if grown else kept
    return complete

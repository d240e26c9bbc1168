"""A group: grouping fields and a filter that several rules share, and the layout of its timelines.

A rule needs a group for each set of fields that its features group by, without a filter; a rule in the short form needs
one with its own filter. Timelines have one column of values for each *track* that any rule of the group has ever used.
A column never moves, so timelines written under an earlier version stay readable. `complete` of a track says from which
event time on they hold every event; they lack events that arrived before the first version that needs the track.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any

from buckets.aggregates.registry import SHORT_FUNCTIONS
from buckets.events.schema import EventSchema
from buckets.expressions.expression import COMPARISONS
from buckets.printable import quoted
from buckets.rules.completeness import FROM_THE_FIRST, Completeness, later
from buckets.rules.feature import Counted, Limit, Part, Track, holds_texts, schema_on
from buckets.rules.filter import Filter, canonical_filter, describe_filter, filter_identity, names_this, renamed_filter
from buckets.rules.policies import AlertPolicy
from buckets.rules.prepared import PreparedRules, prepare
from buckets.rules.role import asks_alerts, counted_field, fields_of, renamed_field
from buckets.rules.rule import WHOLE_SHARE, Rule


def kernel_limit(rule: Rule) -> Limit | None:
    """Return the limit that the kernel compares a rule's only feature with; None if it cannot."""
    if rule.limit is not None:
        return rule.limit
    condition = rule.when.expression
    if len(rule.features) != 1 or condition.operator not in COMPARISONS:
        return None
    compared, number = (operand.value for operand in condition.operands)
    (named,) = rule.named_features()
    is_of_group = frozenset(named.fields) == frozenset(rule.group_by) and not named.counted
    if compared != named.name or not isinstance(number, Decimal) or not is_of_group:
        return None
    feature = named.feature
    if feature.function not in SHORT_FUNCTIONS or names_this(feature.where) or feature.periods is not None:
        return None
    return Limit.model_construct(operator=condition.operator, value=number)


NO_NAMES: Mapping[str, str] = MappingProxyType({})
COUNT_TRACK = ""  # Name of the track that holds no measure


@dataclass(frozen=True)
class Group:
    """The rules that share grouping fields and filter, and the layout of their timelines."""

    group_id: str  # 16 hex digits, from fields and filter alone
    fields: tuple[str, ...]  # grouping fields as users see them, in the order of the first rule that named them
    where: Filter  # the filter
    rules: tuple[Rule, ...]  # the rules that need the group, in file order, without deleted ones
    # the columns of the group's timelines, by the names of their tracks; only ever appended to
    measures: tuple[str, ...]
    complete: dict[str, Completeness | None]  # by track, since when timelines are complete; None: since the first event
    # version of the rule set in which the group was created. A group that goes and comes back is new, and ignores the
    # timelines that the first has left.
    generation: int
    on: Counted = "events"  # what its timelines hold, events or alerts
    # under which identity its timelines lie in the state, if they were filled from the archive; empty where that is
    # `group_id`
    timelines: str = ""
    # by field, the name by which the group's identity and its keys know it, where that is another one
    first_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def state_id(self) -> str:
        """Return the identity under which a shard keeps its timelines, and the state of policies for its keys."""
        return self.timelines or self.group_id

    @cached_property
    def key_fields(self) -> tuple[str, ...]:
        """Return the grouping fields in the order of encoded keys: sorted by their first names."""
        return tuple(sorted(self.fields, key=lambda field: renamed_field(field, self.first_names)))

    @cached_property
    def counted_fields(self) -> tuple[str, ...]:
        """Return the fields by which events enter its timelines."""
        return tuple(map(counted_field, self.fields))

    @cached_property
    def way_in(self) -> tuple[str, tuple[str, ...]]:
        """Return its identity, and the fields by which an event counts here, in key order."""
        return self.group_id, tuple(map(counted_field, self.key_fields))

    @property
    def live_tracks(self) -> tuple[str, ...]:
        """Return the tracks that some rule reads, the count first."""
        used = set(used_tracks(self.rules, self.fields))
        return (COUNT_TRACK, *(measure for measure in self.measures if measure in used))

    @property
    def longest_window_ms(self) -> int:
        """Return the longest time from the beginning of a window of its rules to the event, in ms."""
        return max(window.begins_ms for rule in self.rules for window in rule.windows(self.fields))

    def completeness(self, *tracks: str) -> Completeness:
        """Return the times from which the given tracks and the count of events are all complete."""
        known = [self.complete[track] for track in (COUNT_TRACK, *tracks)]
        return reduce(later, [each for each in known if each is not None], FROM_THE_FIRST)

    @cached_property
    def limit_rules(self) -> tuple[Rule, ...]:
        """Return the evaluated rules that compare one value with a limit, which the kernel does itself."""
        return tuple(rule for rule in self.rules if rule.is_evaluated and kernel_limit(rule) is not None)

    @cached_property
    def condition_rules(self) -> tuple[Rule, ...]:
        """Return the evaluated rules that compute features and then a condition."""
        return tuple(rule for rule in self.rules if rule.is_evaluated and kernel_limit(rule) is None)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Return the distinct parts computed for the features of rules with conditions."""
        return tuple(dict.fromkeys(part for rule in self.condition_rules for part in rule.parts(self.fields)))

    @cached_property
    def derived_tracks(self) -> dict[str, Track]:
        """Return the tracks that its rules read, by name."""
        parts = (part for rule in self.rules for part in rule.parts(self.fields))
        return {track.name: track for part in parts for track in part.tracks}

    @cached_property
    def own_rules(self) -> PreparedRules:
        """Return the rules with a condition that need no other group."""
        return prepare(rule for rule in self.condition_rules if len(rule.groupings()) == 1)

    @cached_property
    def spanning_rules(self) -> tuple[Rule, ...]:
        """Return the rules with a condition that need this group and others."""
        return tuple(rule for rule in self.condition_rules if len(rule.groupings()) > 1)

    @cached_property
    def spanning_parts(self) -> tuple[Part, ...]:
        """Return the distinct parts computed here for rules that need this group and others."""
        return tuple(dict.fromkeys(part for rule in self.spanning_rules for part in rule.parts(self.fields)))

    @cached_property
    def policies(self) -> dict[str, tuple[AlertPolicy[Any], ...]]:
        """Return by rule_id the policies that hold back alerts of rules whose key belongs to this group.

        Rules without such a policy are left out, unless they alert only for a share of keys.
        """
        holding = {
            rule.rule_id: tuple(policy for policy in rule.policies if policy.held_by is not None)
            for rule in self.rules
            if self.is_home_of(rule)
        }
        shared = {rule.rule_id for rule in self.rules if rule.rollout < WHOLE_SHARE}
        return {rule_id: policies for rule_id, policies in holding.items() if policies or rule_id in shared}

    def digits(self, name: str, schema: EventSchema) -> int:
        """Return the number of digits after the point in one of its columns."""
        track = self.derived_tracks.get(name)
        of = name if track is None else track.of
        is_of_values = track is None or track.kind in ("value", "least", "greatest")
        return schema.measures[of].scale if is_of_values and of in schema.measures else 0

    def text_columns(self, schema: EventSchema) -> tuple[bool, ...]:
        """Return which of its columns hold texts, including those that no rule reads any more."""
        texts = [field for field, kind in schema.attributes.items() if kind == "string"]

        def holds(name: str) -> bool:
            track = self.derived_tracks.get(name)
            if track is not None:
                return holds_texts(track, schema)
            return any(name == field or name.startswith(f"value({field}) where ") for field in texts)

        return tuple(map(holds, self.measures))

    def is_home_of(self, rule: Rule) -> bool:
        """Return whether this group holds the key of a rule that needs it."""
        return frozenset(rule.group_by) == frozenset(self.fields)

    @cached_property
    def name(self) -> str:
        """Return the group in words: its fields, and its filter if it has one."""
        name = group_name(self.fields, self.where, self.on)
        if asks_alerts(self.fields):
            return name
        return name if self.on == "events" or not self.fields else f"alerts by {name}"

    @property
    def needed_fields(self) -> frozenset[str]:
        """Return the fields that must not be null in its events: grouping fields, and those aggregated here."""
        return frozenset() if asks_alerts(self.fields) else self.named_fields

    @cached_property
    def named_fields(self) -> frozenset[str]:
        """Return its grouping fields, and the fields that rules aggregate here."""
        here = frozenset(self.fields)
        features = (named for rule in self.rules for named in rule.named_features() if frozenset(named.fields) == here)
        return frozenset(fields_of(here)) | {named.feature.of for named in features if named.feature.of is not None}


def group_name(fields: Iterable[str], where: Filter, on: Counted = "events") -> str:
    """Return a group in words: its fields, and its filter if it has one."""
    names = ", ".join(map(quoted, fields)) or f"all {on}"
    return f"{names} where {describe_filter(where)}" if where else names


def group_id(
    fields: Iterable[str], where: Filter, on: Counted = "events", first_names: Mapping[str, str] = NO_NAMES
) -> str:
    """Return the identity of a group: the same for the same fields, in any order, and the same filter.

    A renamed field is represented by its first name, from `first_names`.
    """
    named = sorted(renamed_field(field, first_names) for field in fields)
    on = "alerts" if asks_alerts(named) else on
    parts = [named, filter_identity(renamed_filter(where, first_names)), *([on] if on == "alerts" else [])]
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def canonical_group_id(fields: Iterable[str], where: Filter, schema: EventSchema, on: Counted = "events") -> str:
    """Return the identity of a group with its filter in the form of `canonical_filter`."""
    try:
        return group_id(fields, canonical_filter(where, schema_on(on, schema)), on)
    except ValueError:  # of another event schema
        return group_id(fields, where, on)


def used_tracks(rules: Iterable[Rule], fields: Iterable[str]) -> list[str]:
    """Return the tracks that rules read in a group, without the count, in the order in which rules name them."""
    parts = (part for rule in rules for part in rule.parts(fields))
    return list(dict.fromkeys(track.name for part in parts for track in part.tracks))

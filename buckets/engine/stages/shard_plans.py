"""The plans of a batch's rules, computed once for all shards and batches with the same rules."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from buckets.arrays import Int64s
from buckets.byte_strings import fixed
from buckets.config.engine import EngineSettings
from buckets.engine.batch.fan_out import EventFields, judged_flags
from buckets.engine.batch.shard_events import ShardEvents
from buckets.engine.storage.shard_store import strings_of
from buckets.engine.values.track_values import track_values
from buckets.events.schema import EventSchema
from buckets.kernel.group_plans import GroupPlans, join_plans
from buckets.kernel.keyed_events import NO_TRACK, KeyedEvents
from buckets.kernel.plan import GroupPlan, plan_group
from buckets.lists.index import Lists
from buckets.rules.feature import Track
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

_KEPT = 8  # So many rule sets are remembered: those of events, of alerts, and a few of before


@dataclass(frozen=True)
class GroupSet:
    """Groups whose events are scored together."""

    schema: EventSchema  # the event schema
    plans: Sequence[GroupPlan]  # their plans

    @cached_property
    def joined(self) -> GroupPlans:
        """The plans as flat arrays for the kernel."""
        return join_plans(self.plans)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each plan, by group."""
        return {plan.group.group_id: number for number, plan in enumerate(self.plans)}

    @cached_property
    def _tracks_of(self) -> list[list[Track | None]]:
        """The track of each column of each plan; None for a column that no rule reads any more."""
        return [[_track(plan.group, name, self.schema) for name in plan.group.measures] for plan in self.plans]

    @cached_property
    def _tracks(self) -> dict[Track, int]:
        tracks = [track for of_plan in self._tracks_of for track in of_plan if track is not None]
        return {track: number for number, track in enumerate(dict.fromkeys(tracks))}

    @cached_property
    def _track(self) -> Int64s:
        columns = [track for of_plan in self._tracks_of for track in of_plan]
        return np.array([NO_TRACK if track is None else self._tracks[track] for track in columns], np.int64)

    def keyed(self, arrived: ShardEvents, lists: Lists) -> KeyedEvents:
        """Convert events to the arrays that the kernel reads."""
        plans = [self.numbers[group_id] for group_id in arrived.group_ids]
        wanted = {self._tracks[track]: track for plan in plans for track in self._tracks_of[plan] if track is not None}
        fields, ids = EventFields(self.schema, arrived.events, lists), strings_of(arrived.events["event_id"])
        values, nulls, texts = track_values(wanted, fields, len(self._tracks), len(ids.data))
        return KeyedEvents(
            np.array(plans, np.int64),
            arrived.group_start,
            arrived.key_start,
            arrived.rows,
            arrived.events["time_ms"].to_numpy(),
            values,
            nulls,
            self._track,
            ids if not texts else fixed(np.concatenate([ids.data, np.frombuffer(texts, np.uint8)]), ids.start),
            judged_flags(arrived.events),
            np.empty(0, np.int8) if arrived.ways is None else arrived.ways,
        )


def _track(group: Group, name: str, schema: EventSchema) -> Track | None:
    track = group.derived_tracks.get(name)
    return Track("value", name) if track is None and name in schema.measures else track


@dataclass(frozen=True)
class ShardPlans:
    """The plans of the rules of a batch."""

    rule_set: RuleSet  # the rules
    schema: EventSchema  # the event schema
    engine: EngineSettings  # the settings that decide results

    @cached_property
    def by_state_id(self) -> dict[str, GroupPlan]:
        """The plans of all groups, including those that are being filled, by the identity of their timelines."""
        schema_json, version = self.schema.model_dump_json(), self.rule_set.version
        return {
            group.state_id: _plan(_Hashed(group, version), schema_json, self.engine)
            for group in (*self.rule_set.groups, *self.rule_set.filling.values())
        }

    @cached_property
    def groups(self) -> GroupSet:
        """The groups of the rules."""
        return GroupSet(self.schema, [self.by_state_id[group.state_id] for group in self.rule_set.groups])

    @cached_property
    def group_ids(self) -> list[str]:
        """The ids of the groups, in the order of the rules."""
        return [group.group_id for group in self.rule_set.groups]

    @cached_property
    def holding(self) -> set[str]:
        """The groups that may have policy entries in a shard, which are read when their keys are scored."""
        return {plan.group.group_id for plan in self.groups.plans if plan.resetting or _holds_back(plan.group)}


def _holds_back(group: Group) -> bool:
    spanning = {rule.rule_id for rule in group.spanning_rules}  # of which the driver decides
    return any(policies for rule_id, policies in group.policies.items() if rule_id not in spanning)


_KNOWN: deque[ShardPlans] = deque(maxlen=_KEPT)


def shard_plans(rule_set: RuleSet, schema: EventSchema, engine: EngineSettings) -> ShardPlans:
    """Return the plans of a rule set; those of the same object are computed once."""
    for known in _KNOWN:
        is_same_engine = known.engine is engine or known.engine == engine  # a look at each field takes long
        if known.rule_set is rule_set and is_same_engine and (known.schema is schema or known.schema == schema):
            return known
    plans = ShardPlans(rule_set, schema, engine)
    _KNOWN.appendleft(plans)
    return plans


class _Hashed:
    """A group with a cheap hash; unlike rules, it differs if features are in another order."""

    def __init__(self, group: Group, version: int) -> None:
        self.group = group
        self.features = [[*rule.features] for rule in group.rules]
        self._hash = hash((group.group_id, version))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.features == other.features and self.group == other.group


@lru_cache(maxsize=1024)
def _plan(hashed: _Hashed, schema_json: str, engine: EngineSettings) -> GroupPlan:
    return plan_group(hashed.group, EventSchema.model_validate_json(schema_json), engine)

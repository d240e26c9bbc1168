"""The settings that decide results: shards, precision of windows, and what happens to events that break the order."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import (
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from buckets.config.environment import Settings
from buckets.duration import DAY_MS, MINUTE_MS, DurationMs, format_duration, parse_duration_ms
from buckets.events.schema import EventSchema
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import FilterField
from buckets.rules.group import canonical_group_id, group_id, group_name
from buckets.rules.rule import Rule

EdgePolicy = Literal["include", "exclude", "prorate"]
WIDEST_MS = 7 * DAY_MS  # Widest bucket
ALL = "all"


class Tier(Settings):
    """Wider buckets, further back.

    Attributes:
        after: the age from which on events go into them.
        resolution: their width, a multiple of the width before them.
    """

    after: DurationMs
    resolution: DurationMs


class Precision(Settings):
    """How precise the windows of a group are.

    Attributes:
        tail: how long events are kept raw, a duration or `all`: as long as any window needs them.
        resolution: width of the buckets after the tail, 1ms to 7d.
        tiers: wider buckets, further back.
        edge: how a value counts the bucket in which the edge of its window lies.
    """

    tail: int | None = None
    resolution: DurationMs = MINUTE_MS
    tiers: tuple[Tier, ...] = ()
    edge: EdgePolicy = "include"

    @field_validator("tail", mode="before")
    @classmethod
    def _duration_or_all(cls, value: object) -> object:
        if value == ALL:
            return None
        try:
            return parse_duration_ms(value)
        except ValueError as error:
            message = f"{error}, or `{ALL}`"
            raise ValueError(message) from None

    @field_serializer("tail", when_used="json")
    def _write_tail(self, value: int | None) -> str:
        return ALL if value is None else format_duration(value)

    def _faults(self) -> Iterator[str]:
        if self.tail is None:
            if self.tiers:
                yield "tiers: with `tail: all` there are no buckets; give the tail a duration, or write `tiers: []`"
            return
        after_ms, width_ms, before = self.tail, self.resolution, "resolution"
        yield from _width_faults("resolution", width_ms)
        for number, tier in enumerate(self.tiers, 1):
            location = f"tiers[{number}]"
            if tier.after <= after_ms:
                yield (
                    f"{location}.after: {format_duration(tier.after)} is not further back than the "
                    f"{format_duration(after_ms)} before it; list tiers from the youngest to the oldest, after the tail"
                )
            yield from _width_faults(f"{location}.resolution", tier.resolution)
            if tier.resolution <= width_ms or tier.resolution % width_ms:
                yield (
                    f"{location}.resolution: {format_duration(tier.resolution)} is not a multiple of the "
                    f"{format_duration(width_ms)} of {before}, whose buckets it combines"
                )
            after_ms, width_ms, before = tier.after, tier.resolution, location

    def describe(self) -> str:
        """Return the setting in words."""
        if self.tail is None:
            return "every event raw"
        parts = [f"raw for {format_duration(self.tail)}", f"then {format_duration(self.resolution)} buckets"]
        parts += [f"after {format_duration(tier.after)} {format_duration(tier.resolution)}" for tier in self.tiers]
        return ", ".join(parts)


class GroupPrecision(Precision):
    """The precision of one group; settings that it leaves out are those of the job.

    Attributes:
        group_by: the group's fields, in any order.
        where: the group's filter.
    """

    group_by: tuple[str, ...]
    where: FilterField = ()

    def group_id(self, schema: EventSchema | None = None) -> str:
        """Return the identity of the group; with an event schema, of its filter in the form of `canonical_filter`."""
        if schema is None:
            return group_id(self.group_by, self.where)
        return canonical_group_id(self.group_by, self.where, schema)

    @property
    def name(self) -> str:
        """The group in words."""
        return group_name(self.group_by, self.where)


class JobPrecision(Precision):
    """The precision of a job, and of the groups that differ from it.

    Attributes:
        groups: groups that differ; what one of them leaves out is as the job has it.
    """

    groups: tuple[GroupPrecision, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, written: Any) -> Any:
        """Write what the job sets into each group that does not set it."""
        if not isinstance(written, dict) or not isinstance(written.get("groups"), list | tuple):
            return written
        own = {name: value for name, value in written.items() if name != "groups"}

        def merged(group: Any) -> Any:
            if not isinstance(group, dict):
                return group
            inherited = dict(own)
            if group.get("tail") == ALL:
                inherited.pop("tiers", None)
            return inherited | group

        return written | {"groups": [merged(group) for group in written["groups"]]}

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        identities = [group.group_id() for group in self.groups]
        for number, identity in enumerate(identities, 1):
            if identity in identities[: number - 1]:
                yield f"groups[{number}]: the same group is given twice"

    def descriptions(self) -> dict[str, str]:
        """Return the precision of the job and of the groups that differ, in words."""
        return {"all groups": self.describe()} | {group.name: group.describe() for group in self.groups}

    def of_group(self, identity: str, schema: EventSchema | None = None) -> Precision:
        """Return the precision of a group, by its identity: with an event schema, that of `canonical_group_id`."""
        return next((group for group in self.groups if group.group_id(schema) == identity), self)


def _width_faults(location: str, width_ms: int) -> Iterator[str]:
    if not 1 <= width_ms <= WIDEST_MS:
        yield f"{location}: {format_duration(width_ms)} is not a possible width of a bucket; it may be 1ms to 7d"


DuplicatesBy = Literal["time", "id"]
LatePolicy = Literal["add", "evaluate", "drop"]
CollisionPolicy = Literal["keep", "keep_first", "replace"]
NullPolicy = Literal["leave_out", "strict"]
MOST_SHARDS = 4096


class DuplicateSettings(Settings):
    """Which events are duplicates of one that has arrived, and are not taken in again.

    Attributes:
        by: `time`, the same id at the same time; or `id`, the same id within a span of time, for messages that are sent
            again with a new timestamp. The latter looks up the ids of each key's events of that span in each batch.
        within: with `by: id`, how far apart in time two events with the same id may be. It reaches no further back than
            the timeline of the group: its longest window and the allowed lateness.
    """

    by: DuplicatesBy = "time"
    within: DurationMs | None = None

    def _faults(self) -> Iterator[str]:
        if self.by == "id" and not self.within:
            yield "`by: id` needs `within`: how far apart in time two events of one id may be, as in 7d"
        if self.by == "time" and self.within is not None:
            yield "within: goes with `by: id`; with `by: time` two events of one id have the same time. Leave it out"

    def describe(self) -> str:
        """Return the setting in words."""
        return "time" if self.within is None else f"id within {format_duration(self.within)}"


class EngineSettings(Settings):
    """The `engine` part of a job's configuration.

    Attributes:
        shards: into how many parts the keys of a group are divided.
        allowed_lateness: how late an event may be.
        late: what is done with a late event.
        collision: what is done with an event that shares its time with another.
        duplicates: which events have arrived before.
        nulls: what is done with an event that lacks a field by which some rule groups, or which it aggregates: it is
            left out of that group or aggregate, or it is malformed for all rules.
        precision: how precise windows are.
    """

    shards: int = Field(default=16, ge=1, le=MOST_SHARDS)
    allowed_lateness: DurationMs = 3_600_000
    late: LatePolicy = "add"
    collision: CollisionPolicy = "keep"
    duplicates: DuplicateSettings = DuplicateSettings()
    nulls: NullPolicy = "leave_out"
    precision: JobPrecision = JobPrecision()

    def required(self, needed: frozenset[str]) -> frozenset[str]:
        """Return the fields without which an event is malformed, of those that rules group by or aggregate."""
        return needed if self.nulls == "strict" else frozenset()

    def _faults(self) -> Iterator[str]:
        within = self.duplicates.within
        policy = "late: evaluate" if self.late == "evaluate" else f"collision: {self.collision}"
        needs_raw = self.late == "evaluate" or self.collision != "keep"
        for tail in (precision.tail for precision in (self.precision, *self.precision.groups)):
            if tail is not None and within is not None and tail < within:
                yield (
                    f"precision.tail: {format_duration(tail)} is shorter than duplicates.within "
                    f"{format_duration(within)}, and older events have no ids any more; make the tail at least as "
                    "long, or `within` shorter"
                )
            if tail is not None and needs_raw and tail < self.allowed_lateness:
                yield (
                    f"precision.tail: {format_duration(tail)} is shorter than allowed_lateness "
                    f"{format_duration(self.allowed_lateness)}, and `{policy}` needs raw events for so long; "
                    "make the tail at least as long, or choose another policy"
                )


def raw_window_fault(rule: Rule, engine: EngineSettings, schema: EventSchema) -> str | None:
    """Return why a rule looks further back than events are kept raw; None where it does not."""
    if rule.on == "alerts":  # These are few, and all of them are kept raw.
        return None
    for named in rule.named_features():
        feature = named.feature
        if feature.on is not None or not (rule.reset_on_alert or feature.needs_raw_events or feature.periods):
            continue
        precision = engine.precision.of_group(canonical_group_id(named.fields, named.group_where, schema), schema)
        if feature.periods is not None:
            fault = _periods_fault(named, precision, engine.allowed_lateness)
            if fault is not None:
                return fault
        elif precision.tail is not None and feature.window.reach_ms > precision.tail:
            why = f"features.{named.name}.window: {feature.function} looks at single events, which"
            if feature.window.needs_raw_events:
                why = f"features.{named.name}.window: a single event begins it, and single events"
            if rule.reset_on_alert:
                why = "reset_on_alert: the window may begin at any event, and these"
            return (
                f"{why} are kept for {format_duration(precision.tail)} (engine.precision.tail); shorten the window or "
                "lengthen the tail"
            )
    return None


def _periods_fault(named: NamedFeature, precision: Precision, lateness_ms: int) -> str | None:
    """Return why buckets hold events of two periods of a feature; None where none do."""
    assert named.feature.periods is not None
    periods, reach_ms = named.feature.periods, named.feature.window.reach_ms + lateness_ms
    widths_ms = [precision.resolution] if precision.tail is not None and precision.tail < reach_ms else []
    widths_ms += [tier.resolution for tier in precision.tiers if tier.after < reach_ms]
    width_ms = periods.unaligned_ms(widths_ms)
    if width_ms is None:
        return None
    return (
        f"features.{named.name}.window: buckets of {format_duration(width_ms)} (engine.precision) may hold events of "
        f"two {periods.unit}; shorten the window, take buckets that end with each, or lengthen the tail"
    )


def raw_window_faults(origin: str, rules: Iterable[Rule], engine: EngineSettings, schema: EventSchema) -> Iterator[str]:
    """Yield the rules that look further back than events are kept raw."""
    for rule in rules:
        fault = raw_window_fault(rule, engine, schema)
        if fault is not None:
            yield f"{origin}: rule {rule.rule_id!r}: {fault}"


def precision_faults(origin: str, rules: Iterable[Rule], engine: EngineSettings, schema: EventSchema) -> Iterator[str]:
    """Yield the precisions of groups that no rule has, or that have one already."""
    groupings = [grouping for rule in rules if rule.on == "events" for grouping in rule.groupings()]
    known = {canonical_group_id(fields, where, schema): group_name(fields, where) for fields, where in groupings}
    identities = [group.group_id(schema) for group in engine.precision.groups]
    for index, (group, identity) in enumerate(zip(engine.precision.groups, identities, strict=True)):
        location = f"{origin}: engine.precision.groups[{index + 1}]"
        if identity in identities[:index]:
            yield f"{location}: the same group is given twice"
        elif identity not in known:
            groups = "; ".join(sorted(set(known.values())))
            yield f"{location}: no rule has the group {group.name!r}; groups of the rules: {groups}"

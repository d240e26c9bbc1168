"""How precise windows are: how long events are kept raw, and the buckets of older events."""

from typing import Any, Literal

from pydantic import field_serializer, field_validator, model_validator

from buckets.config.environment import Settings
from buckets.duration import DAY_MS, MINUTE_MS, DurationMs, format_duration, parse_duration_ms
from buckets.events.schema import EventSchema
from buckets.rules.filter import FilterField
from buckets.rules.group import canonical_group_id, group_id, group_name

EdgePolicy = Literal["include", "exclude", "prorate"]
WIDEST_MS = 7 * DAY_MS  # Widest bucket
ALL = "all"


class Tier(Settings):
    """Wider buckets, further back.

    Attributes:
        after: how old events are that lie in them.
        resolution: how wide they are, a multiple of the width before.
    """

    after: DurationMs
    resolution: DurationMs


class Precision(Settings):
    """How precise the windows of a group are.

    Attributes:
        tail: how long events are kept raw, a duration or `all`: as long as any window needs them.
        resolution: width of the buckets after the tail, 1ms to 7d.
        tiers: wider buckets, further back.
        edge: what a value does with the bucket into which its window's edge falls.
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

    @model_validator(mode="after")
    def _fits_together(self) -> "Precision":
        if self.tail is None:
            if self.tiers:
                message = "tiers: with `tail: all` there are no buckets; give the tail a duration, or write `tiers: []`"
                raise ValueError(message)
            return self
        after_ms, width_ms, before = self.tail, self.resolution, "resolution"
        _check_width("resolution", width_ms)
        for number, tier in enumerate(self.tiers, 1):
            location = f"tiers[{number}]"
            if tier.after <= after_ms:
                message = (
                    f"{location}.after: {format_duration(tier.after)} is not further back than the "
                    f"{format_duration(after_ms)} before it; list tiers from the youngest to the oldest, after the tail"
                )
                raise ValueError(message)
            _check_width(f"{location}.resolution", tier.resolution)
            if tier.resolution <= width_ms or tier.resolution % width_ms:
                message = (
                    f"{location}.resolution: {format_duration(tier.resolution)} is not a multiple of the "
                    f"{format_duration(width_ms)} of {before}, whose buckets it combines"
                )
                raise ValueError(message)
            after_ms, width_ms, before = tier.after, tier.resolution, location
        return self

    def describe(self) -> str:
        """Return the setting in words."""
        if self.tail is None:
            return "every event raw"
        parts = [f"raw for {format_duration(self.tail)}", f"then {format_duration(self.resolution)} buckets"]
        parts += [f"after {format_duration(tier.after)} {format_duration(tier.resolution)}" for tier in self.tiers]
        return ", ".join(parts)


class GroupPrecision(Precision):
    """The precision of one group; what it does not set is as the job sets it.

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

    @model_validator(mode="after")
    def _groups_once(self) -> "JobPrecision":
        identities = [group.group_id() for group in self.groups]
        for number, identity in enumerate(identities, 1):
            if identity in identities[: number - 1]:
                message = f"groups[{number}]: the same group is given twice"
                raise ValueError(message)
        return self

    def descriptions(self) -> dict[str, str]:
        """Return the precision of the job and of the groups that differ, in words."""
        return {"all groups": self.describe()} | {group.name: group.describe() for group in self.groups}

    def of_group(self, identity: str, schema: EventSchema | None = None) -> Precision:
        """Return the precision of a group, by its identity: with an event schema, that of `canonical_group_id`."""
        return next((group for group in self.groups if group.group_id(schema) == identity), self)


def _check_width(location: str, width_ms: int) -> None:
    if not 1 <= width_ms <= WIDEST_MS:
        message = f"{location}: {format_duration(width_ms)} is no width of a bucket; it may be 1ms to 7d"
        raise ValueError(message)

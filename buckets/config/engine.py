"""The settings that decide results: how many shards, what happens to events that break the order, how precise."""

from typing import Literal

from pydantic import Field, model_validator

from buckets.config.environment import Settings
from buckets.config.precision import JobPrecision
from buckets.duration import DurationMs, format_duration

LatePolicy = Literal["add", "evaluate", "drop"]
CollisionPolicy = Literal["keep", "keep_first", "replace"]
NullPolicy = Literal["leave_out", "strict"]
MOST_SHARDS = 4096


class EngineSettings(Settings):
    """The `engine` part of a job's configuration.

    Attributes:
        shards: how many parts the keys of a group fall into.
        allowed_lateness: how late an event may be.
        late: what is done with one that is late.
        collision: what is done with one that shares its time with another.
        nulls: what is done with one that lacks a field which some rule groups by or aggregates: it is left out of that
            group or aggregate, or it is malformed for all rules.
        precision: how precise windows are.
    """

    shards: int = Field(default=16, ge=1, le=MOST_SHARDS)
    allowed_lateness: DurationMs = 3_600_000
    late: LatePolicy = "add"
    collision: CollisionPolicy = "keep"
    nulls: NullPolicy = "leave_out"
    precision: JobPrecision = JobPrecision()

    def required(self, needed: frozenset[str]) -> frozenset[str]:
        """Return the fields without which an event is malformed, of those that rules group by or aggregate."""
        return needed if self.nulls == "strict" else frozenset()

    @model_validator(mode="after")
    def _raw_where_a_policy_needs_it(self) -> "EngineSettings":
        policy = "late: evaluate" if self.late == "evaluate" else f"collision: {self.collision}"
        if self.late != "evaluate" and self.collision == "keep":
            return self
        for precision in (self.precision, *self.precision.groups):
            if precision.tail is not None and precision.tail < self.allowed_lateness:
                message = (
                    f"precision.tail: {format_duration(precision.tail)} is shorter than allowed_lateness "
                    f"{format_duration(self.allowed_lateness)}, and `{policy}` needs raw events for so long; "
                    "make the tail at least as long, or choose another policy"
                )
                raise ValueError(message)
        return self

"""The settings that decide results: how many shards, what happens to events that break the order, how precise."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from buckets.duration import DurationMs

LatePolicy = Literal["add", "evaluate", "drop"]
CollisionPolicy = Literal["keep", "keep_first", "replace"]
MOST_SHARDS = 4096


class Precision(BaseModel):
    """How precise windows are.

    Every event is kept raw (`tail: all`), so every window is exact; `resolution` and `edge` speak of buckets
    behind a shorter tail and have no effect here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tail: str = "all"
    resolution: DurationMs = 60_000
    tiers: tuple[()] = ()
    edge: Literal["include", "exclude", "prorate"] = "include"

    @field_validator("tail")
    @classmethod
    def _all(cls, value: str) -> str:
        if value != "all":
            message = f"{value!r} is not supported: this version keeps every event raw; write `tail: all`"
            raise ValueError(message)
        return value

    @field_validator("tiers", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        if value not in ([], ()):
            message = "tiers are not supported: this version keeps every event raw; write `tiers: []`"
            raise ValueError(message)
        return ()


class EngineSettings(BaseModel):
    """The `engine` part of a job's configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shards: int = Field(default=16, ge=1, le=MOST_SHARDS)
    allowed_lateness: DurationMs = 3_600_000
    late: LatePolicy = "add"
    collision: CollisionPolicy = "keep"
    precision: Precision = Precision()

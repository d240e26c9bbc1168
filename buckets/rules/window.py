"""The window of a rule or a feature."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from buckets.duration import DurationMs, format_duration


class Window(BaseModel):
    """How far a window reaches back from its event, and whether it holds an event exactly that old."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    length_ms: DurationMs = Field(alias="length")
    left: Literal["closed", "open"] = "closed"

    @field_validator("length_ms", mode="after")
    @classmethod
    def _longer_than_nothing(cls, value: int) -> int:
        if value <= 0:
            message = "a window is at least 1ms long"
            raise ValueError(message)
        return value

    @field_serializer("length_ms")
    def _as_written(self, value: int) -> str:
        return format_duration(value)

    @property
    def reach_ms(self) -> int:
        """How much older than its event an event of the window may be."""
        return self.length_ms - (self.left == "open")

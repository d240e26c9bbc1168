"""Parts: what the kernel computes of a group for the features of its rules, each different one once."""

from dataclasses import dataclass

from buckets.rules.track import Track
from buckets.rules.window import Window


@dataclass(frozen=True)
class Part:
    """An operation over a window of a group's events.

    Attributes:
        operation: what the kernel computes, one of `buckets.aggregates.operation`.
        column: of which track; None for a count.
        second: a second track, where pairs of values are counted.
        counted: a track that says which events count; None where all do.
        window: how far back it reaches.
        on_trial: whether only rules on trial need it.
        parameter: of a percentile, which one it is in hundredths of a per cent; 0 for all else.
    """

    operation: int
    column: Track | None
    second: Track | None
    counted: Track | None
    window: Window
    on_trial: bool
    parameter: int = 0

    @property
    def tracks(self) -> tuple[Track, ...]:
        """What it reads."""
        return tuple(track for track in (self.column, self.second, self.counted) if track is not None)

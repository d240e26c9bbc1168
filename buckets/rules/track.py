"""Tracks: what a timeline keeps of its events for rules, one column of integers each."""

from dataclasses import dataclass

from buckets.aggregates.component import ColumnKind
from buckets.rules.filter import Filter, describe_filter


@dataclass(frozen=True)
class Track:
    """A column of a timeline.

    Attributes:
        kind: what is kept of a field.
        of: the field; None where only events are counted.
        where: which events count; empty for all.
    """

    kind: ColumnKind
    of: str | None
    where: Filter = ()

    @property
    def name(self) -> str:
        """What tells tracks apart: of plain values, the field; of all else a text that is no name of a measure."""
        if self.kind == "value" and not self.where:
            return self.of or ""
        filtered = f" where {describe_filter(self.where)}" if self.where else ""
        return f"{self.kind}({self.of or ''}){filtered}"

"""A whole job as loops over lists: what has to come of each payment, batch by batch, and whether the tables say so.

A result that says `warm: false` may lack something, so its value is not compared. Nor is what became of a payment
that is behind by more than the allowed lateness, if its rows are not warm: its key may have been evicted. Where a
result is not comparable, the oracle goes on from what the job says, as the next results follow from it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from buckets.rules.group import Group
from tests.walk.batch_check import BatchCheck
from tests.walk.found import Row
from tests.walk.rare import RarePaths
from tests.walk.recorded import RecordedBatch
from tests.walk.timelines import Timelines
from tests.walk.written import MEASURES, event_of, has_key, looked, passes


@dataclass
class OracleJob:
    """The job."""

    rare: RarePaths
    groups: dict[str, tuple[int, Timelines]] = field(default_factory=dict)
    """By identity, the generation of a group and its events."""
    alert_ms: dict[Any, int] = field(default_factory=dict)
    """By rule and key, the latest event at which an alert began a cooldown."""
    clock_ms: int = -(2**62)
    """The latest event within the order of the stream."""

    past: list[Row] = field(default_factory=list)
    """All events so far, from which a history is filled in."""
    backfilled: dict[str, int] = field(default_factory=dict)
    """By rule, the first batch for which its history has been filled in."""

    def check(self, batch: RecordedBatch, tables: dict[str, list[Row]], filled: Collection[str] = ()) -> None:
        """Take in the events of a batch, and compare what has become of them.

        Args:
            batch: the batch.
            tables: its rows, by output.
            filled: the rules whose history is filled in sooner or later; until it is, their results are not compared.

        Raises:
            Difference: it is something else.
        """
        filling = {rule_id for rule_id in filled if self.backfilled.get(rule_id, batch.number + 1) > batch.number}
        BatchCheck(self, batch, tables, filling).check()

    def timelines(self, group: Group, batch: RecordedBatch) -> Timelines:
        """The events of a group, under the rules of a batch; none of an earlier generation."""
        generation, found = self.groups.get(group.group_id, (None, None))
        if found is None or generation != group.generation:
            self.rare.saw("a generation that came back", found is not None)
            found = Timelines([], MEASURES)
            self.groups[group.group_id] = group.generation, found
        found.under(group, batch.terms.engine, keeps_raw=group.on == "alerts")
        if any(self.backfilled.get(rule.rule_id) == batch.number for rule in group.rules):
            self._fill(group, found, batch)
            self.rare.saw("a history filled in")
        return found

    def _fill(self, group: Group, timelines: Timelines, batch: RecordedBatch) -> None:
        """Give a group all events that there ever were, as if it had been there from the start."""
        timelines.forget()
        for row in self.past:
            if has_key(group, row) and passes(group, row, looked(batch)):
                timelines.take(event_of(group, row, row["id"]), row)

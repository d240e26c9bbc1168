"""What a replay has found: how much was compared, what differs, and what of that is of eviction alone."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from buckets.history.replay.cold_keys import ColdKeys
from buckets.history.replay.differences import KINDS, DifferenceKind, RowDifference
from buckets.history.replay.pieces import CutAs
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS
from buckets.rules.rule import Rule

KEPT = 10_000
"""The most differences that are kept; all are counted."""


@dataclass
class Replayed:
    """What a replay has found.

    Attributes:
        cut_as: whether batches were scored as they were cut, or joined.
        last_batch: the last batch that was scored.
        batches: how many batches that are.
        not_compared: the last batch that is recorded, where that is after what is archived.
        evicts_otherwise: whether idle keys may be evicted at another moment than in the job: with joined batches, and
            where history was filled in bit by bit, or state was imported.
        events: how many arrivals were scored.
        compared: by output, how many recorded rows were compared.
        of_output: by output, how many differences there are.
        counts: how many differences there are of each kind; those that `eviction` counts are not among them.
        eviction: if keys may be evicted otherwise, how many differences `ColdKeys` explains. It is no fault of the
            records.
        differences: the first of all of these.
        missing: rule, event and key of alerts that did not come out, where it is not known that this is of eviction.
        cold: the keys whose rows say that windows were not complete.
    """

    cut_as: CutAs
    last_batch: int
    batches: int
    not_compared: int | None
    evicts_otherwise: bool = False
    events: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    of_output: Counter[str] = field(default_factory=Counter)
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    eviction: int = 0
    differences: list[RowDifference] = field(default_factory=list)
    missing: set[tuple[str, str, str]] = field(default_factory=set)
    cold: ColdKeys = field(default_factory=ColdKeys)

    @property
    def may_evict_otherwise(self) -> bool:
        """Whether idle keys may have been evicted at another moment than in the job."""
        return self.cut_as == "joined" or self.evicts_otherwise

    @property
    def is_equal(self) -> bool:
        """Whether all that is recorded came out again, and nothing else."""
        return not any(self.counts[kind] for kind in KINDS)

    def note(self, differences: list[RowDifference], rule_of: Callable[[RowDifference], Rule | None]) -> None:
        """Take differences into account.

        Args:
            differences: of all outputs, so that what one follows from is among them or came before.
            rule_of: gives the rule of a row as it was then; None where the job never had it, or the row is of no rule.
        """
        self.cold.note(differences)
        for difference in differences:
            if self.may_evict_otherwise and self.cold.explain(difference, rule_of(difference)):
                self.eviction += 1
                continue
            self.counts[difference.kind] += 1
            if difference.kind == "recorded_only" and difference.output in ALERT_OUTPUTS:
                row = difference.row
                self.missing.add((row["rule_id"], row["event_id"], row["key"]))
        self._keep(differences)

    def note_strangers(self, differences: list[RowDifference]) -> None:
        """Take rows into account whose batch the job never had."""
        self.counts.update(difference.kind for difference in differences)
        self._keep(differences)

    def _keep(self, differences: list[RowDifference]) -> None:
        self.of_output.update(difference.output for difference in differences)
        self.differences += differences[: KEPT - len(self.differences)]

"""The scored events of one group and shard, and what several outputs take from them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from buckets.engine.batch.keyed_table import KeyedTable
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import Scored

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ScoredGroup:
    """The scored events of one group and shard.

    Attributes:
        plan: the group's plan.
        ruleset_version: version of the rule set that evaluated the events.
        table: the events, key by key, each key's in arrival order.
        scored: outcomes and rows.
    """

    plan: GroupPlan
    ruleset_version: int
    table: KeyedTable
    scored: Scored

    @cached_property
    def clocks_ms(self) -> Int64s:
        """To which time the clock of its key has come with each event."""
        return np.maximum(self.table.column("time_ms"), self.scored.outcomes.clock_ms)

    def warm(self, events: Int64s, rules: npt.NDArray[np.int32] | Int64s) -> npt.NDArray[np.bool_]:
        """Return whether the windows of rules at events reach no further back than what has been kept for rule and key.

        Args:
            events: indices of events.
            rules: for each of them the index of a rule, or of a part.
        """
        times_ms, plan = self.table.times_ms(events), self.plan
        step = np.searchsorted(plan.complete_from_ms, times_ms, side="right") - 1
        since_ms = np.maximum(plan.complete_since_ms[rules, step], self.scored.since_ms[self.table.codes[events]])
        return times_ms - plan.reach_ms[rules] >= since_ms

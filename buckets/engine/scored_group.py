"""The scored events of one group and shard, and what several outputs take from them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.key import decode_key, key_json
from buckets.events.arrivals import event_json
from buckets.events.schema import EventSchema
from buckets.kernel.outcome import OUTCOMES
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import Scored

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ScoredGroup:
    """The scored events of one group and shard. Methods take the indices of some events, int64 `(n,)`.

    Attributes:
        plan: the group's plan.
        schema: the event schema.
        ruleset_version: version of the rule set that evaluated the events.
        events: the events as they came in their payload, key by key, each key's in arrival order.
        keys: the key of each code.
        codes: int64 `(events,)`, each event's key.
        scored: outcomes and rows.
    """

    plan: GroupPlan
    schema: EventSchema
    ruleset_version: int
    events: pa.Table
    keys: Sequence[str]
    codes: Int64s
    scored: Scored

    def outcome_counts(self) -> list[int]:
        """How many events had each outcome, by its code in `buckets.kernel.outcome`."""
        return np.bincount(self.scored.outcomes.code, minlength=OUTCOMES).tolist()

    def take(self, events: Int64s) -> pa.Table:
        """The events as they came."""
        return self.events.take(pa.array(events))

    def key_column(self, events: Int64s) -> pa.Array:
        """The keys of events, as JSON text."""
        codes, index = np.unique(self.codes[events], return_inverse=True)
        texts = [key_json(self.plan.group, self.keys[code], self.schema) for code in codes.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(index))

    def warm(self, events: Int64s, rules: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Whether the windows of rules at events reach no further back than what has been kept for rule and key.

        Args:
            events: indices of events.
            rules: for each of them the index of a rule.
        """
        times_ms, plan = self.events["time_ms"].to_numpy()[events], self.plan
        step = np.searchsorted(plan.complete_from_ms, times_ms, side="right") - 1
        since_ms = np.maximum(plan.complete_since_ms[rules, step], self.scored.since_ms[self.codes[events]])
        return times_ms - plan.reach_ms[rules] >= since_ms

    def event_texts(self, events: Int64s, taken: pa.Table) -> list[str]:
        """Events as JSON text.

        Args:
            events: indices of events.
            taken: the same events, as `take` gives them.
        """
        names = {f"attribute:{name}": name for name in self.schema.attributes}
        names |= {f"measure:{name}": name for name in self.schema.measures}
        known = [name for name in taken.column_names if name in names]
        keys = [decode_key(self.plan.group, self.keys[code], self.schema) for code in self.codes[events]]
        others = taken.select(known).rename_columns([names[name] for name in known]).to_pylist()
        ids, times_ms = taken["event_id"].to_pylist(), taken["time_ms"].to_pylist()
        declared = [*self.schema.attributes, *self.schema.measures]
        texts = []
        for event_id, time_ms, key, other in zip(ids, times_ms, keys, others, strict=True):
            fields = key | other
            texts.append(event_json(self.schema, event_id, time_ms, {name: fields[name] for name in declared}))
        return texts

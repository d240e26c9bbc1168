"""The core driven without Spark: a dictionary for the state store, and events as in a micro-batch."""

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from buckets.engine_settings import EngineSettings
from buckets.plan import plan_group
from buckets.rule import Rule
from buckets.rule_set import first_rule_set
from buckets.scaled import format_scaled, to_scaled
from buckets.scoring import EventIds, KeyBatch, score
from buckets.verdict import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, OVERFLOW, TOO_LATE
from tests.oracle import Event, Outcome
from tests.strategies import SCHEMA

NAMES = {
    EVALUATED: "evaluated",
    TOO_LATE: "too_late",
    DUPLICATE: "duplicate",
    LATE: "late",
    COLLISION_NOT_KEPT: "collision_not_kept",
    OVERFLOW: "overflow",
}
LEAST = -(2**63)


class Engine:
    """One group of rules over a state store of bytes."""

    def __init__(self, rules: list[Rule], **settings) -> None:
        self.plan = plan_group(first_rule_set(rules).groups[0], SCHEMA, EngineSettings.model_validate(settings))
        self.store: dict[str, bytes] = {}

    def batch(self, events: list[Event], emit_all: bool = True) -> list[Outcome]:
        """Score one micro-batch; outcomes in arrival order."""
        keys = sorted({event.key for event in events})
        order = [index for key in keys for index, event in enumerate(events) if event.key == key]
        key_start = np.array([0, *np.cumsum([sum(e.key == key for e in events) for key in keys])], np.int64)
        chosen = [list(SCHEMA.measures).index(measure) for measure in self.plan.group.measures]
        scales = [measure.scale for measure in SCHEMA.measures.values()]
        values = np.array(
            [[to_scaled(str(events[i].values[column]), scales[column]) for i in order] for column in chosen], np.int64
        ).reshape(len(chosen), len(order))
        key_batch = KeyBatch(
            key_start=key_start,
            times_ms=np.array([events[i].time_ms for i in order], np.int64),
            values=values,
            ids=EventIds.of([events[i].event_id for i in order]),
        )
        scored = score(self.plan, [self.store.get(key, b"") for key in keys], key_batch, emit_all)
        self.store.update(zip(keys, scored.timelines, strict=True))
        outcomes: list[Outcome | None] = [None] * len(events)
        for place, index in enumerate(order):
            clock = int(scored.verdicts.clock_ms[place])
            outcomes[index] = Outcome(
                NAMES[int(scored.verdicts.outcome[place])],
                bool(scored.verdicts.applied[place]),
                None if clock == LEAST else clock,
                scored.other_id(place),
            )
        for event, rule, whole, micro, count, fired in zip(*scored.rows, strict=True):
            scale = self.plan.value_scales[rule]
            scaled = (
                int(whole) * 10**6 + int(micro) if self.plan.rules[rule].aggregate.function == "avg" else int(whole)
            )
            result = (Decimal(format_scaled(scaled, scale)), int(count), bool(fired))
            outcomes[order[event]].results[self.plan.rules[rule].rule_id] = result
        return outcomes

    def run(self, batches: Iterable[list[Event]]) -> list[Outcome]:
        """Score micro-batches one after the other."""
        return [outcome for batch in batches if batch for outcome in self.batch(batch)]

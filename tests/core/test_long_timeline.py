"""A key with 20,000 events in its horizon, cut as in production: as exact as a short one, and its head stays small."""

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest

from buckets.kernel.score import PAGING
from buckets.rules.rule import Rule
from tests.engine import Engine
from tests.oracle import Event, average_bounds, exact_decimal, shown_decimal

EVENTS, BATCH = 20_000, 500
STEP_MS = 1_000
LATENESS_MS = 3_600_000
HEAD_BYTES = 40_000
LENGTHS = {"10m": 600_000, "2h": 7_200_000, "9h": 32_400_000}
FUNCTIONS = ["sum", "count", "avg", "min", "max"]
RULES = [
    Rule.model_validate(
        {
            "rule_id": f"{function} {length}",
            "group_by": ["k"],
            "aggregate": {"function": function, "measure": "amount"},
            "window": {"length": length},
            "limit": {"operator": ">", "value": "100"},
        }
    )
    for function in FUNCTIONS
    for length in LENGTHS
]
TIERED = {"tail": "1h", "resolution": "1m", "tiers": [{"after": "4h", "resolution": "10m"}]}
TIERS_MS = [(3_600_000, 60_000), (14_400_000, 600_000)]


@dataclass(frozen=True)
class Stream:
    """Events in arrival order, a tenth of them late by up to half the allowed lateness."""

    times_ms: np.ndarray
    cents: np.ndarray

    @classmethod
    def make(cls) -> "Stream":
        random = np.random.default_rng(5)
        times_ms = np.arange(EVENTS) * STEP_MS + random.integers(0, 2 * STEP_MS, EVENTS)
        late = random.random(EVENTS) < 0.1
        times_ms[late] -= random.integers(0, LATENESS_MS // 2, late.sum())
        return cls(times_ms, random.integers(-10_000, 10_000, EVENTS))

    def batches(self) -> list[list[Event]]:
        events = [
            Event(f"e{number}", int(at), "k", (exact_decimal(int(cents), 2), Decimal(0)))
            for number, (at, cents) in enumerate(zip(self.times_ms, self.cents, strict=True))
        ]
        return [events[start : start + BATCH] for start in range(0, EVENTS, BATCH)]

    def window(self, number: int, length_ms: int, tiers) -> tuple[np.ndarray, np.ndarray]:
        """Values of the events that are surely inside the window of an event, and those of its edge's open bucket."""
        times_ms, cents = self.times_ms[: number + 1], self.cents[: number + 1]
        at, edge_ms, width_ms = times_ms[-1], times_ms[-1] - length_ms, 1
        for after_ms, wider_ms in tiers:
            if edge_ms < (at - after_ms) // wider_ms * wider_ms:
                width_ms = wider_ms
        bucket = times_ms // width_ms == edge_ms // width_ms
        if width_ms > 1 and bucket.any() and times_ms[bucket].min() < edge_ms <= times_ms[bucket].max():
            return cents[(times_ms // width_ms > edge_ms // width_ms) & (times_ms <= at)], cents[bucket]
        return cents[(times_ms >= edge_ms) & (times_ms <= at)], cents[:0]


def computed(function: str, sure: list[int], maybe: list[int]) -> tuple[Decimal, Decimal, Decimal]:
    """Value, lower and upper bound where the bucket of the edge is included."""
    plus, minus = sum(x for x in maybe if x > 0), -sum(x for x in maybe if x < 0)
    if function == "count":
        return Decimal(len(sure) + len(maybe)), Decimal(len(sure)), Decimal(len(sure) + len(maybe))
    if function == "sum":
        numbers, scale = (sum(sure) + sum(maybe), sum(sure) - minus, sum(sure) + plus), 2
    elif function == "avg":
        ends = average_bounds(sure, maybe, plus, minus)
        mean, _ = average_bounds(sure + maybe, [], 0, 0)
        value, lower, upper = (shown_decimal("avg", each, 2) for each in (mean, *ends))
        return value, lower, upper
    else:
        best = min if function == "min" else max
        whole = best(sure + maybe)
        numbers, scale = (whole, *sorted([best(sure), whole])), 2
    value, lower, upper = (exact_decimal(number, scale) for number in numbers)
    return value, lower, upper


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tiers"), [({"tail": "all"}, []), (TIERED, TIERS_MS)], ids=["all", "tiers"])
def test_a_long_timeline_is_exact_and_its_head_stays_small(precision, tiers):
    stream = Stream.make()
    engine = Engine(RULES, PAGING, allowed_lateness="1h", precision=precision)
    found, largest, most = [], 0, 0
    for batch in stream.batches():
        found += engine.batch(batch)
        largest, most = max(largest, len(engine.store["k"])), max(most, len(engine.pages))
    assert largest < HEAD_BYTES
    assert most <= PAGING.most_pages
    engine.check_store()
    on_time = [number for number, outcome in enumerate(found) if outcome.outcome == "evaluated"]
    assert 0.8 * EVENTS < len(on_time) < EVENTS
    opened = 0
    for number in [*on_time[:: EVENTS // 60], on_time[-1]]:
        for rule in RULES:
            sure, maybe = (each.tolist() for each in stream.window(number, LENGTHS[rule.rule_id.split()[1]], tiers))
            value, lower, upper = computed(rule.aggregate.function, sure, maybe)
            result, bounds = found[number].results[rule.rule_id], found[number].bounds[rule.rule_id]
            assert (result.value, result.count) == (value, len(sure) + len(maybe))
            assert bounds[:3] == (lower, upper, lower == upper)
            opened += len(maybe) > 0
    assert (opened > 0) == bool(tiers)


@pytest.mark.slow
def test_how_a_long_timeline_is_cut_into_batches_does_not_matter():
    """Few and large batches, or the last events one by one."""
    events = [event for batch in Stream.make().batches() for event in batch]
    one, other = (Engine(RULES, PAGING, allowed_lateness="1h", precision=TIERED) for _ in range(2))
    large, small = [0, 9_000, 19_900, EVENTS], [*range(0, 19_900, 700), *range(19_900, EVENTS + 1)]
    first, second = (
        engine.run(events[start:end] for start, end in pairwise(ends))
        for engine, ends in ((one, large), (other, small))
    )
    assert first == second
    assert one.state() == other.state()
    one.check_store()
    other.check_store()

"""Operations that only features need, on single events, different values and ranks: engine and oracle.

A rule stands in for each of them. Its sum is exchanged for the operation in the plan, and in the oracle for a loop.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from buckets.aggregates import component as codes
from buckets.duration import format_duration
from buckets.events.schema import EventSchema
from buckets.kernel.plan import ALWAYS, FeatureArrays, GroupPlan
from buckets.rules.feature import VALUE
from buckets.rules.rule import Rule
from buckets.timeline.tiers import Paging
from tests.engine import SMALL, Engine
from tests.oracle import Bounds, Event, Oracle, Outcome, Result
from tests.strategies import LENGTHS_MS, streams

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"k": "string"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}, "ok": {"scale": 0}},
    }
)
MEASURES = {name: measure.scale for name, measure in SCHEMA.measures.items()}
RANKS = ("PERCENTILE", "MEDIAN", "MODE")
NAMES = ("FIRST", "FIRST_TIME", "PREVIOUS", "PREVIOUS_TIME", "COUNT_DISTINCT", *RANKS)


class Wanted(NamedTuple):
    """A feature that is wanted; of a percentile, `hundredths` of a per cent."""

    operation: str
    measure: str = "amount"
    second: str | None = None
    counted: str | None = None
    length_ms: int = 10
    left: str = "closed"
    hundredths: int = 5_000


def rule(rule_id: str, measure: str, function: str = "sum", length_ms: int = 10, left: str = "closed") -> Rule:
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": ["k"],
            "aggregate": {"function": function, "measure": measure},
            "window": {"length": format_duration(length_ms), "left": left},
            "limit": {"operator": ">", "value": "0"},
        }
    )


# Each brings its measure into the timeline; sums of amounts may overflow.
OTHERS = [rule("sum", "amount"), rule("least", "fee", "min", 25), rule("count", "ok", "count", 1)]
OTHERS.append(rule("most", "ok", "max", 100))


def rules_for(wanted: list[Wanted]) -> list[Rule]:
    """A rule for each feature, among others; rule `f0` stands for the first."""
    features = [
        rule(f"f{at}", each.measure, length_ms=each.length_ms, left=each.left) for at, each in enumerate(wanted)
    ]
    return [*features[::2], *OTHERS, *features[1::2]]


def with_features(plan: GroupPlan, wanted: list[Wanted]) -> GroupPlan:
    """A plan whose rules have a feature each: the wanted ones, and others as they are."""
    rules, measures = plan.rules, list(plan.group.measures)
    numbers = np.arange(len(rules))
    found = {each.rule_id: wanted[int(each.rule_id[1:])] for each in rules if each.rule_id[1:].isdigit()}
    chosen = [found.get(each.rule_id) for each in rules]

    def column(name: str | None) -> int:
        return -1 if name is None else measures.index(name)

    operations = [
        getattr(codes, one.operation) if one else each.features[VALUE].aggregate.operation
        for one, each in zip(chosen, rules, strict=True)
    ]
    at = {int(number): position for position, number in enumerate(plan.rule_arrays.number)}
    order = np.array([at[number] for number in range(len(rules))])
    before = np.searchsorted(plan.feature_arrays.rules_end, order, side="right")
    is_wanted = np.array([one is not None for one in chosen])
    features = FeatureArrays(
        operation=np.array(operations, np.int64),
        measure=np.array([column(each.measure) if each.measure else 0 for each in rules], np.int64),
        second=np.array([column(one.second if one else None) for one in chosen], np.int64),
        counted=np.array([column(one.counted if one else None) for one in chosen], np.int64),
        parameter=np.array([one.hundredths if one else 0 for one in chosen], np.int64),
        steps=plan.feature_arrays.steps[before],
        window=plan.feature_arrays.window[before],
        patience_ms=plan.feature_arrays.patience_ms[before],
        on_trial=plan.feature_arrays.on_trial[before],
        resets=plan.feature_arrays.resets[before],
        resets_from_ms=plan.feature_arrays.resets_from_ms[before],
        resets_until_ms=plan.feature_arrays.resets_until_ms[before],
        rules_from=numbers,
        falling_from=numbers + 1,
        other_from=numbers + 1,
        rules_end=numbers + 1,
    )
    limits = type(plan.rule_arrays)(*(array[order] for array in plan.rule_arrays))
    comparison = np.where(is_wanted, ALWAYS, limits.comparison)
    return replace(plan, feature_arrays=features, rule_arrays=limits._replace(comparison=comparison))


def with_tenths(whole: int, micro: int) -> Decimal:
    """A whole and millionths as a decimal, however large."""
    assert micro in (0, 500_000)
    return Decimal(f"{(whole * 10 + micro // 100_000)}E-1")


class FeatureEngine(Engine):
    """An engine whose rules `f0`, `f1` and so on are the wanted features."""

    schema = SCHEMA

    def __init__(self, wanted: list[Wanted], paging: Paging = SMALL, **settings: Any) -> None:
        self.wanted = wanted
        self.pages_read = 0
        super().__init__(rules_for(wanted), paging, **settings)

    def settings(self, **settings: Any) -> None:
        super().settings(**settings)
        self.plan = with_features(self.plan, self.wanted)

    def _shown(self, rule: int, whole: int, micro: int, events: int) -> Decimal | None:
        if self.plan.rules[rule].rule_id.startswith("f"):
            return self._number(rule, whole, micro)
        return super()._shown(rule, whole, micro, events)

    def _number(self, rule: int, whole: int, micro: int) -> Decimal:
        if self.plan.rules[rule].rule_id.startswith("f"):
            return with_tenths(whole, micro)
        return super()._number(rule, whole, micro)


@dataclass
class FeatureOracle(Oracle):
    """A loop over a list for each of these functions."""

    wanted: list[Wanted] = field(default_factory=list)

    @classmethod
    def of(cls, wanted: list[Wanted], **settings: Any) -> "FeatureOracle":
        return cls(rules_for(wanted), MEASURES, wanted=wanted, **settings)

    def evaluate(self, rule: Rule, event: Event, clock: int | None, now: int, outcome: Outcome, may_pass: bool) -> None:
        if not rule.rule_id.startswith("f"):
            super().evaluate(rule, event, clock, now, outcome, may_pass)
            return
        edge = event.time_ms - rule.window.reach_ms
        if not self.is_in_time(rule, event, clock):
            return
        wanted = self.wanted[int(rule.rule_id[1:])]
        in_order = sorted(self.events[event.key], key=lambda x: x.time_ms)
        own = max(at for at, x in enumerate(in_order) if x is event)
        if wanted.operation.startswith("PREVIOUS"):
            in_order = in_order[:own]
        inside = [x for x in in_order if edge <= x.time_ms <= event.time_ms]
        counted = [x for x in inside if wanted.counted is None or self.scaled([x], wanted.counted) == [1]]
        if not wanted.operation.endswith("TIME"):
            counted = [x for x in counted if self.scaled([x], wanted.measure) != [None]]
        value, count = self.value(wanted, counted)
        outcome.results[rule.rule_id] = Result(Decimal(value), count, True)
        outcome.bounds[rule.rule_id] = Bounds(Decimal(value), Decimal(value), True, True, count, count)

    def value(self, wanted: Wanted, counted: list[Event]) -> tuple[int | Decimal, int]:
        """Value and number of events of a function over the events that it counts."""
        if wanted.operation == "COUNT_DISTINCT":
            columns = [self.scaled(counted, name) for name in (wanted.measure, wanted.second) if name]
            return len(set(zip(*columns, strict=True))), len(counted)
        if not counted:
            return 0, 0
        if wanted.operation in RANKS:
            return self.ranked(wanted, self.scaled(counted, wanted.measure)), len(counted)
        found = counted[0] if wanted.operation.startswith("FIRST") else counted[-1]
        if wanted.operation.endswith("TIME"):
            return found.time_ms, 1
        return self.scaled([found], wanted.measure)[0], 1

    def ranked(self, wanted: Wanted, came: list[int]) -> int | Decimal:
        """A percentile, the median or the mode of values in the order of time."""
        values = sorted(came)
        if wanted.operation == "MEDIAN":
            twice = values[(len(values) - 1) // 2] + values[len(values) // 2]
            return with_tenths(twice // 2, twice % 2 * 500_000)
        if wanted.operation == "MODE":
            return max(reversed(came), key=came.count)
        return next(
            each
            for each in values
            if sum(other <= each for other in values) * 10_000 >= wanted.hundredths * len(values)
        )


def wanted_features(max_size: int = 8, lengths_ms: list[int] = LENGTHS_MS, names: tuple[str, ...] = NAMES):
    """Some features, with and without a second column and a column that says what counts."""
    measure = st.sampled_from(["amount", "fee"])
    one = st.builds(
        Wanted,
        operation=st.sampled_from(names),
        measure=measure,
        # Both columns of a pair are halves of one value, of which none is the largest number, as which a null is kept.
        second=st.sampled_from([None, "fee"]),
        counted=st.sampled_from([None, None, "ok"]),
        length_ms=st.sampled_from(lengths_ms),
        left=st.sampled_from(["closed", "open"]),
        hundredths=st.one_of(st.sampled_from([1, 5_000, 9_500, 9_999, 10_000]), st.integers(1, 10_000)),
    )
    return st.lists(one, min_size=1, max_size=max_size)


@st.composite
def feature_streams(draw, **options: Any):
    """Streams with few different fees, in which some events count."""
    events = draw(streams(**options))
    ids = list(dict.fromkeys(event.event_id for event in events))
    seldom = draw(st.sampled_from([1, 1, 1, 3]))
    drawn = draw(st.lists(st.integers(0, 2 * seldom + 1), min_size=len(ids), max_size=len(ids)))
    counts = {name: Decimal(number < 2) for name, number in zip(ids, drawn, strict=True)}
    different = draw(st.sampled_from([2, 3, 1000]))
    return [
        event._replace(values=(*_of_few(event, counts[event.event_id], different), counts[event.event_id]))
        for event in events
    ]


def _of_few(event: Event, counts: Decimal, different: int) -> tuple[Decimal | None, Decimal | None]:
    """Amount and fee of an event; as tracks have them, one that does not count has a value in any case."""
    amount, fee = (value if value is not None or counts else Decimal(0) for value in event.values)
    return amount, None if fee is None else Decimal(int(fee) % different)

"""The second implementation: one list of events a key, and loops over it, as `semantics` says and no faster."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from buckets.rule import Rule

COMPARE = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class Event(NamedTuple):
    event_id: str
    time_ms: int
    key: str
    values: tuple[Decimal, ...]
    """One for each measure, in the order of `Oracle.measures`."""


@dataclass
class Outcome:
    outcome: str
    applied: bool = False
    clock_ms: int | None = None
    other_event_id: str | None = None
    results: dict[str, tuple[Decimal, int, bool]] = field(default_factory=dict)


@dataclass
class Oracle:
    rules: list[Rule]
    measures: dict[str, int]
    lateness_ms: int = 0
    late: str = "add"
    collision: str = "keep"

    def __post_init__(self) -> None:
        self.horizon_ms = max(rule.window.length_ms for rule in self.rules) + self.lateness_ms
        self.held: dict[str, list[Event]] = {}
        self.clock_ms: dict[str, int] = {}

    def arrive(self, event: Event) -> Outcome:
        held = self.held.setdefault(event.key, [])
        clock = self.clock_ms.get(event.key)
        if clock is not None and event.time_ms < clock - self.horizon_ms:
            return Outcome("too_late", clock_ms=clock)
        same_time = [x for x in held if x.time_ms == event.time_ms]
        if any(x.event_id == event.event_id for x in same_time):
            return Outcome("duplicate", clock_ms=clock)
        other = same_time[0] if same_time else None
        late = clock is not None and event.time_ms < clock
        outcome = Outcome("late" if late else "evaluated", True, clock, other.event_id if other else None)
        if (late and self.late == "drop") or (other and self.collision == "keep_first"):
            outcome.applied = False
            outcome.outcome = "late" if late else "collision_not_kept"
            return outcome
        before = list(held)
        if other and self.collision == "replace":
            held[held.index(other)] = event
        else:
            held.append(event)
        if not late or self.late == "evaluate":
            for rule in self.rules:
                if rule.is_evaluated:
                    result = self.evaluate(rule, event, clock)
                    if result == "overflow":
                        held[:] = before
                        return Outcome("overflow", False, clock, outcome.other_event_id)
                    if result is not None:
                        outcome.results[rule.rule_id] = result
        if not late:
            self.clock_ms[event.key] = event.time_ms
        return outcome

    def evaluate(self, rule: Rule, event: Event, clock: int | None):
        start = event.time_ms - rule.window.length_ms + (rule.window.left == "open")
        if clock is not None and start < clock - self.horizon_ms:
            return None
        members = [x for x in self.held[event.key] if start <= x.time_ms <= event.time_ms]
        function = rule.aggregate.function
        if function == "count":
            value = Decimal(len(members))
        else:
            column = list(self.measures).index(rule.measure)
            scale = self.measures[rule.measure]
            values = [Fraction(x.values[column]) for x in members]
            if function in ("sum", "avg") and not -(2**63) <= sum(values) * 10**scale < 2**63:
                return "overflow"
            if function == "avg":
                with localcontext() as context:
                    context.prec = 100
                    exact = Fraction(sum(values), len(values)) * 10 ** (scale + 6)
                    whole = exact.numerator // exact.denominator
                    value = round_half_even(exact, whole) * Decimal(10) ** -(scale + 6)
            else:
                exact = {"sum": sum, "min": min, "max": max}[function](values)
                with localcontext() as context:
                    context.prec = 100
                    value = Decimal(exact.numerator) / Decimal(exact.denominator)
        return value, len(members), COMPARE[rule.limit.operator](value, rule.limit.value)


def round_half_even(exact: Fraction, whole: int) -> Decimal:
    with localcontext() as context:
        context.prec = 200
        context.rounding = ROUND_HALF_EVEN
        rest = exact - whole
        if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
            whole += 1
        return Decimal(whole)

"""The second implementation: one list of events a key, and loops over it, as `semantics` says and no faster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from buckets.config.engine import Precision
from buckets.rules.rule import Rule
from buckets.rules.window import Window
from tests.core.aggregates.oracle import oracles

COMPARE = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
BEST = {name: one.best for name, one in oracles().items() if one.best is not None}
"""Functions of rules in the short form that pick one of the values."""
LEAST, GREATEST = -(2**63), 2**63 - 1
Tiers = list[tuple[int, int]]
"""Age and width of the buckets of each tier, in ms, the youngest first."""


class Event(NamedTuple):
    event_id: str
    time_ms: int
    key: str
    values: tuple[Decimal | None, ...]
    """One for each measure, in the order of `Oracle.measures`; None where the event has none."""


class Result(NamedTuple):
    value: Decimal | None
    count: int
    fired: bool


class Bounds(NamedTuple):
    lower: Decimal | None
    upper: Decimal | None
    exact: bool
    certain: bool
    fewest: int
    most: int


class Cell(NamedTuple):
    """One cell of a timeline; sums and extremes by measure, scaled."""

    first_ms: int
    last_ms: int
    events: int
    event_id: str | None
    plus: tuple[int, ...]
    minus: tuple[int, ...]
    least: tuple[int | None, ...]
    greatest: tuple[int | None, ...]
    nulls: tuple[int, ...] = ()
    """How many events have no value; empty where all have one."""


@dataclass
class Outcome:
    outcome: str
    applied: bool = False
    clock_ms: int | None = None
    other_event_id: str | None = None
    results: dict[str, Result] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)
    """Rules whose sums pass 64 bits."""
    repeated: tuple[int, dict[str, Decimal | None]] | None = field(default=None, compare=False)
    """Of a duplicate the time and the measures of the event that had arrived; of the engine those that it keeps."""


@dataclass
class Oracle:
    rules: list[Rule]
    measures: dict[str, int]
    lateness_ms: int = 0
    late: str = "add"
    collision: str = "keep"
    precision: dict[str, Any] = field(default_factory=dict)
    """As written in a configuration."""
    repeats_ms: int = 0
    """How far apart two events of one id may be to be duplicates."""

    def __post_init__(self) -> None:
        precision = Precision.model_validate(self.precision)
        self.edge, self.tiers = precision.edge, tiers_of(precision)
        self.horizon_ms = max(rule.window.begins_ms for rule in self.rules) + self.lateness_ms
        self.events: dict[str, list[Event]] = {}
        self.clock_ms: dict[str, int] = {}
        self.reset_ms: dict[tuple[str, str], int] = {}
        """When a rule last fired for a key."""
        self.conditions: list[Rule] = []
        """Rules with features, where some are known."""

    def arrive(self, event: Event, refused: bool | None = None, judged: bool = True) -> Outcome:
        """Take in an event.

        Args:
            event: the event.
            refused: whether a sum counts as passing 64 bits, where that is decided elsewhere; sums may pass them then.
            judged: whether something comes out for it.
        """
        events = self.events.setdefault(event.key, [])
        clock = self.clock_ms.get(event.key)
        if clock is not None and event.time_ms < clock - self.horizon_ms:
            return Outcome("too_late", clock_ms=clock)
        now = event.time_ms if clock is None else max(clock, event.time_ms)
        is_raw = width_at(self.tiers, event.time_ms, now) is None
        same_time = [x for x in events if x.time_ms == event.time_ms] if is_raw else []
        repeated = self.repeated(event, events, now) or [x for x in same_time if x.event_id == event.event_id]
        if repeated:
            first = repeated[0]
            values = dict(zip(self.measures, first.values, strict=False))
            return Outcome("duplicate", clock_ms=clock, repeated=(first.time_ms, values))
        other = same_time[0] if same_time else None
        late = clock is not None and event.time_ms < clock
        outcome = Outcome("late" if late else "evaluated", True, clock, other.event_id if other else None)
        if (late and self.late == "drop") or (other and self.collision == "keep_first"):
            outcome.applied = False
            outcome.outcome = "late" if late else "collision_not_kept"
            return outcome
        before = list(events)
        if other and self.collision == "replace":
            events[events.index(other)] = event
        else:
            events.append(event)
        if not late or (self.late == "evaluate" and is_raw):
            for rule in self.rules:
                if rule.is_evaluated:
                    self.evaluate(rule, event, clock, now, outcome, may_pass=refused is not None)
            outcome.beyond += self.conditions_beyond(event, clock)
            in_force = {rule.rule_id for rule in [*self.rules, *self.conditions] if rule.state == "ACTIVE"}
            beyond = [rule_id for rule_id in outcome.beyond if rule_id in in_force]
            if refused or (refused is None and beyond):
                events[:] = before
                return Outcome("overflow", False, clock, outcome.other_event_id, beyond=beyond if refused else [])
        if not late:
            self.clock_ms[event.key] = event.time_ms
        if not judged:
            return Outcome("late" if late else "unjudged", True, clock, outcome.other_event_id)
        for rule in self.rules:
            if rule.reset_on_alert and rule.rule_id in outcome.results and outcome.results[rule.rule_id].fired:
                last_ms = self.reset_ms.get((rule.rule_id, event.key), event.time_ms)
                self.reset_ms[rule.rule_id, event.key] = max(last_ms, event.time_ms)
        return outcome

    def repeated(self, event: Event, events: list[Event], now: int) -> list[Event]:
        """Events of the same id that are near enough, the nearest first, and of those the earlier."""
        near = [
            x
            for x in events
            if x.event_id == event.event_id
            and abs(x.time_ms - event.time_ms) <= self.repeats_ms
            and x.time_ms >= now - self.horizon_ms
            and width_at(self.tiers, x.time_ms, now) is None
        ]
        return sorted(near, key=lambda x: (abs(x.time_ms - event.time_ms), x.time_ms))

    def evaluate(self, rule: Rule, event: Event, clock: int | None, now: int, outcome: Outcome, may_pass: bool) -> None:
        """Evaluate a rule, and note what comes out."""
        edge = event.time_ms - rule.window.begins_ms + (rule.window.left == "open")
        if not self.is_in_time(rule, event, clock):
            return
        if rule.effective is not None:
            first_ms, end_ms = rule.effective.span_ms()
            if not first_ms <= event.time_ms < end_ms:
                return
        reset_ms = self.reset_ms.get((rule.rule_id, event.key))
        if rule.reset_on_alert and reset_ms is not None:
            if event.time_ms <= reset_ms:
                return
            edge = max(edge, reset_ms + 1)
        inside, bucket, covered = self.window(event, edge, now, rule.window)
        function, scale = rule.aggregate.function, 0
        sure, maybe = [0] * len(inside), [0] * len(bucket)
        if function != "count":
            scale = self.measures[rule.measure]
            sure, maybe = self.scaled(inside, rule.measure), self.scaled(bucket, rule.measure)
            sure, maybe = ([each for each in of if each is not None] for of in (sure, maybe))
        net = {"include": sum(maybe), "exclude": 0, "prorate": round(sum(maybe) * covered)}[self.edge]
        part = {"include": len(maybe), "exclude": 0, "prorate": round(len(maybe) * covered)}[self.edge]
        count, fewest, most = len(sure) + part, len(sure), len(sure) + len(maybe)
        plus, minus = sum(x for x in maybe if x > 0), -sum(x for x in maybe if x < 0)
        if function == "count":
            value, lower, upper = count, len(inside), len(inside) + len(bucket)
        elif most == 0:
            outcome.results[rule.rule_id] = Result(None, 0, False)
            outcome.bounds[rule.rule_id] = Bounds(None, None, True, True, 0, 0)
            return
        elif function in BEST and not sure:
            value, lower, upper = BEST[function](maybe), min(maybe), max(maybe)
        elif function in BEST:
            best = BEST[function]
            value = best(sure) if self.edge == "exclude" else best(sure + maybe)
            lower, upper = sorted([best(sure), best(sure + maybe)])
        else:
            if sum(sure) - minus > GREATEST or sum(sure) + plus < LEAST:
                outcome.beyond.append(rule.rule_id)
                if not may_pass:
                    return
            value, lower, upper = sum(sure) + net, sum(sure) - minus, sum(sure) + plus
            if function == "avg":
                lower, upper = average_bounds(sure, maybe, plus, minus)
                value = min(max(Fraction(value, count or 1), lower), upper)
            elif not may_pass:
                value, lower, upper = (min(max(each, LEAST), GREATEST) for each in (value, lower, upper))
        compare, limit = COMPARE[rule.limit.operator], Fraction(rule.limit.value) * 10**scale
        certain = compare(lower, limit) == compare(upper, limit)
        if rule.limit.operator in ("=", "!="):
            may_be_met = lower <= limit <= upper and (function == "avg" or limit.denominator == 1)
            certain = lower == upper or not may_be_met
        shown, low, high = (shown_decimal(function, each, scale) for each in (value, lower, upper))
        may_fire = not certain or compare(lower, limit)
        # Of no values at all the result is NULL, which crosses no limit.
        is_known = fewest > 0 or function == "count"
        fired, shown = (compare(value, limit), shown) if count or function == "count" else (False, None)
        certain = certain and (is_known or not may_fire)
        outcome.results[rule.rule_id] = Result(shown, count, fired)
        outcome.bounds[rule.rule_id] = Bounds(low, high, lower == upper and is_known, certain, fewest, most)

    def conditions_beyond(self, event: Event, clock: int | None) -> list[str]:
        """The rules with features of which a sum passes 64 bits, by their ids."""
        return []

    def is_in_time(self, rule: Rule, event: Event, clock: int | None) -> bool:
        """Whether a rule is evaluated at an event, which may be late by so much."""
        return clock is None or event.time_ms >= clock - self.lateness_ms

    def window(self, event: Event, edge: int, now: int, of: Window) -> tuple[list[Event], list[Event], Fraction]:
        """Events that are surely inside, those of the edges' buckets that may be, and how much of that is covered."""
        events, end = self.events[event.key], event.time_ms - of.offset_ms
        if of.exclude is not None:
            own = max(index for index, x in enumerate(events) if x is event)
            events = events[:own] + events[own + 1 :]
        inside, maybe, covered, widths = [x for x in events if edge <= x.time_ms <= end], [], 0, 0
        width = width_at(self.tiers, edge, now)
        if width is not None:
            whole = [x for x in events if x.time_ms // width == edge // width]
            if whole and min(x.time_ms for x in whole) < edge <= max(x.time_ms for x in whole):
                inside = [x for x in inside if x.time_ms // width > edge // width]
                maybe, covered, widths = whole, width - edge % width, width
        width = width_at(self.tiers, end, now) if of.offset_ms else None
        if width is not None and not any(x.time_ms // width == end // width for x in maybe):
            whole = [x for x in events if x.time_ms // width == end // width]
            if whole and min(x.time_ms for x in whole) <= end < max(x.time_ms for x in whole):
                inside = [x for x in inside if x.time_ms // width < end // width]
                maybe, covered, widths = maybe + whole, covered + end % width + 1, widths + width
        return inside, maybe, Fraction(covered, widths) if widths else Fraction(1)

    def scaled(self, events: Iterable[Event], measure: str | None) -> list[Any]:
        """Values of a measure as integers; None where an event has none."""
        assert measure is not None
        column = list(self.measures).index(measure)
        values = [x.values[column] for x in events]
        return [None if value is None else int(value.scaleb(self.measures[measure])) for value in values]

    def cells(self, key: str, measures: Sequence[str]) -> list[Cell]:
        """The key's timeline: what lies inside the horizon, folded as the tiers say, oldest first."""
        clock = self.clock_ms[key]
        coarsest = self.tiers[-1][1] if self.tiers else 1
        kept_from = (clock - self.horizon_ms) // coarsest * coarsest
        events = sorted((x for x in self.events[key] if x.time_ms >= kept_from), key=lambda x: x.time_ms)
        columns = [self.scaled(events, measure) for measure in measures]
        cells = [
            Cell(
                first_ms=x.time_ms,
                last_ms=x.time_ms,
                events=1,
                event_id=x.event_id,
                plus=tuple(max(column[index] or 0, 0) for column in columns),
                minus=tuple(max(-(column[index] or 0), 0) for column in columns),
                least=tuple(column[index] for column in columns),
                greatest=tuple(column[index] for column in columns),
                nulls=tuple(int(column[index] is None) for column in columns),
            )
            for index, x in enumerate(events)
        ]
        return folded(cells, self.tiers, clock)


def tiers_of(precision: Precision) -> Tiers:
    """The tiers after the tail; none where every event is kept raw."""
    if precision.tail is None:
        return []
    return [(precision.tail, precision.resolution), *((tier.after, tier.resolution) for tier in precision.tiers)]


def width_at(tiers: Tiers, time_ms: int, clock_ms: int) -> int | None:
    """Width of the bucket in which a time lies; None in the tail."""
    width = None
    for after_ms, width_ms in tiers:
        if time_ms < (clock_ms - after_ms) // width_ms * width_ms:
            width = width_ms
    return width


def folded(cells: list[Cell], tiers: Tiers, clock_ms: int) -> list[Cell]:
    """Cells, oldest first, with those of one bucket as one."""

    def bucket(numbered: tuple[int, Cell]) -> tuple[Any, ...]:
        index, cell = numbered
        width = width_at(tiers, cell.first_ms, clock_ms)
        return ("raw", index) if width is None else (width, cell.first_ms // width)

    together = []
    for (kind, _), numbered in groupby(enumerate(cells), bucket):
        members = [cell for _, cell in numbered]
        together.append(members[0] if kind == "raw" else combined(members))
    return together


def combined(cells: list[Cell]) -> Cell:
    """Several cells as a bucket."""

    def by_measure(function, field_name: str) -> tuple[int, ...]:
        return tuple(map(function, zip(*(getattr(cell, field_name) for cell in cells), strict=True)))

    def of_known(best):
        return lambda values: best((value for value in values if value is not None), default=None)

    return Cell(
        first_ms=min(cell.first_ms for cell in cells),
        last_ms=max(cell.last_ms for cell in cells),
        events=sum(cell.events for cell in cells),
        event_id=None,
        plus=by_measure(sum, "plus"),
        minus=by_measure(sum, "minus"),
        least=by_measure(of_known(min), "least"),
        greatest=by_measure(of_known(max), "greatest"),
        nulls=by_measure(sum, "nulls"),
    )


def average_bounds(sure: list[int], maybe: list[int], plus: int, minus: int) -> tuple[Fraction, Fraction]:
    """Between what the average lies when any of some values may be in too, as `bounds` says."""
    total, least_count, greatest_count = sum(sure), len(sure), len(sure) + len(maybe)
    if not sure:
        return Fraction(min(maybe)), Fraction(max(maybe))
    if not maybe:
        return Fraction(total, least_count), Fraction(total, least_count)
    counts = (least_count, greatest_count)
    lower = max(
        min(Fraction(total, least_count), Fraction(total + len(maybe) * min(maybe), greatest_count)),
        min(Fraction(total - minus, count) for count in counts),
    )
    upper = min(
        max(Fraction(total, least_count), Fraction(total + len(maybe) * max(maybe), greatest_count)),
        max(Fraction(total + plus, count) for count in counts),
    )
    return lower, upper


def fits(number: int) -> bool:
    """Whether a number fits 64 bits."""
    return LEAST <= number <= GREATEST


def shown_decimal(function: str, exact: Fraction | int, scale: int) -> Decimal:
    """A value in scaled units as it is shown: an average rounded half-even to millionths, all else as it is."""
    if function == "avg":
        return exact_decimal(round(exact * 10**6), scale + 6)
    return exact_decimal(int(exact), scale)


def exact_decimal(scaled: int, scale: int) -> Decimal:
    """A scaled integer as the decimal that it means."""
    with localcontext() as context:
        context.prec = 100
        return Decimal(scaled).scaleb(-scale)

"""One group of a job as lists of events, under rules and settings that change: the oracle's side of a timeline.

All events stay as they are, whatever the precision. What is too late, a repeat or a collision follows from the clock of
a key and the settings in force; the value of a window is a loop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from buckets.config.engine import EngineSettings
from buckets.duration import parse_duration_ms
from buckets.rules.feature import Feature, NamedFeature
from buckets.rules.group import Group
from buckets.rules.rule import Rule
from buckets.rules.window import Window
from tests.core.aggregates.oracle import Seen, oracles
from tests.oracle import Event, Oracle, Outcome, fits, tiers_of, width_at
from tests.walk.catalogue import BY_ID, counted_by, step_tests

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_EACH_EVENT = {name: one for name, one in oracles().items() if name in ("rank", "entropy")}
SCALES = {"amount": 2}
KEPT_MS = 4 * 3_600_000
"""Older events are in no window, and are forgotten."""
MANY = 400


@dataclass
class Timelines(Oracle):
    """The events of one generation of a group, key by key."""

    rows: dict[tuple[str, int, str], Row] = field(default_factory=dict)
    """The fields of each event, by its id, time and key."""

    def __post_init__(self) -> None:
        self.events, self.clock_ms, self.reset_ms, self.conditions = {}, {}, {}, []
        self.edge, self.tiers, self.horizon_ms = "include", [], 0
        self._tail_ms: int | None = None
        self._before_ms: dict[tuple[str, str], int] = {}

    def under(self, group: Group, engine: EngineSettings, keeps_raw: bool) -> None:
        """Go on under the rules and settings of a batch.

        Args:
            group: the group, for which rules need it.
            engine: the settings.
            keeps_raw: whether precision does not apply, as to alerts.
        """
        evaluated, self.fields = [rule for rule in group.rules if rule.is_evaluated], frozenset(group.fields)
        self.rules = [rule for rule in evaluated if rule.limit is not None]
        self.conditions = [rule for rule in evaluated if rule.limit is None]
        self.lateness_ms, self.late = engine.allowed_lateness, engine.late
        self.collision = "keep" if keeps_raw else engine.collision
        self.tiers = [] if keeps_raw else tiers_of(engine.precision.of_group(group.group_id))
        self.horizon_ms = _longest_ms(group.rules, group.fields) + self.lateness_ms
        self._tail_ms = self.tiers[0][0] if self.tiers else None

    def take(self, event: Event, row: Row, judged: bool = True) -> Outcome:
        """Take in an event; of one that is not `judged`, nothing comes out."""
        events = self.events.get(event.key, [])
        if len(events) > MANY:
            oldest_ms = self.clock_ms.get(event.key, event.time_ms) - max(KEPT_MS, self.horizon_ms)
            kept = [each for each in events if each.time_ms >= oldest_ms]
            if len(kept) < len(events) // 2:
                self.events[event.key] = kept
        self._before_ms = dict(self.reset_ms)
        self.rows.setdefault((event.event_id, event.time_ms, event.key), row)
        return self.arrive(event, judged=judged)

    def ask(self, event: Event, row: Row) -> Outcome:
        """Take an event that only asks, and leaves nothing."""
        clock_ms = self.clock_ms.get(event.key)
        self.rows.setdefault((event.event_id, event.time_ms, event.key), row)
        if clock_ms is None or event.time_ms >= clock_ms:
            return Outcome("evaluated", clock_ms=clock_ms)
        return Outcome("too_late" if event.time_ms < clock_ms - self.horizon_ms else "late", clock_ms=clock_ms)

    def conditions_beyond(self, event: Event, clock: int | None) -> list[str]:
        return [
            rule.rule_id
            for rule in self.conditions
            for feature in rule.named_features()
            if frozenset(feature.fields) == self.fields and self.reaches(feature.feature, event, clock)
            if feature.feature.function in ("sum", "avg") and feature.feature.periods is None
            if not fits(self._sum(rule, feature, event))
        ]

    def _sum(self, rule: Rule, feature: NamedFeature, event: Event) -> int:
        """The sum of a feature over its window, scaled."""
        counts, of = counted_by(rule.rule_id, feature.name), feature.feature.of
        values = [row[of] for row in self._counted(feature, event, counts) if row[of] is not None]
        return sum(int(Decimal(value).scaleb(self.measures[of])) for value in values)

    def is_in_time(self, rule: Rule, event: Event, clock: int | None) -> bool:
        return self._is_whole(rule.window, event, clock, needs_raw=rule.reset_on_alert)

    def _is_whole(self, window: Window, event: Event, clock_ms: int | None, needs_raw: bool) -> bool:
        """Whether an event is in time, and its window still kept as it needs it."""
        if clock_ms is None:
            return True
        edge = event.time_ms - window.reach_ms
        is_kept = self._tail_ms is None or not needs_raw or edge >= clock_ms - self._tail_ms
        return event.time_ms >= clock_ms - self.lateness_ms and is_kept

    def window(self, event: Event, edge: int, now: int, of: Window) -> tuple[list[Event], list[Event], Fraction]:
        inside = [
            each for each in self.events.get(event.key, ()) if edge <= each.time_ms <= event.time_ms - of.offset_ms
        ]
        return [each for each in inside if of.exclude is None or each is not event], [], Fraction(1)

    def forget(self) -> None:
        """Begin without events."""
        self.events, self.clock_ms, self.reset_ms = {}, {}, {}

    def follow_reset(self, key: tuple[str, str], time_ms: int, fired: bool) -> None:
        """Count again from what a job says of a result that may lack something."""
        before_ms = self._before_ms.get(key)
        if fired:
            self.reset_ms[key] = time_ms if before_ms is None else max(before_ms, time_ms)
        elif before_ms is None:
            self.reset_ms.pop(key, None)
        else:
            self.reset_ms[key] = before_ms

    def evaluates(self, event: Event, clock_ms: int | None, outcome: Outcome, asks: bool) -> bool:
        """Whether rules with features are evaluated at an event, which may be one that only asks."""
        if outcome.outcome == "late":
            is_raw = clock_ms is None or width_at(self.tiers, event.time_ms, clock_ms) is None
            return self.late == "evaluate" and is_raw and (outcome.applied or asks)
        return outcome.outcome == "evaluated"

    def reaches(self, feature: Feature, event: Event, clock_ms: int | None) -> bool:
        """Whether a feature is evaluated at an event."""
        return self._is_whole(feature.window, event, clock_ms, feature.needs_raw_events)

    def feature(
        self,
        feature: NamedFeature,
        event: Event,
        clock_ms: int | None,
        rule_id: str,
        counts: Callable[[Row, Row], bool],
    ) -> Any:
        """The value of a feature at an event, before which its key had a clock."""
        written = BY_ID[rule_id].written["features"].get(feature.name, {"function": "count"})
        rows, own = self._counted(feature, event, counts), self._row(event)
        if isinstance(written.get("of"), Mapping):
            return of_periods(written, [self._row(each) for each in self.events.get(event.key, ())], own)
        if written["function"] == "sequence":
            return is_last_step(rows, *step_tests(written))
        if written["function"] == "absence":
            came = sorted((self._row(each) for each in self.events[event.key]), key=lambda row: row["t"])
            return unanswered_s(feature.feature, [row for row in came if row is not own], own, written)
        return computed(feature.feature, rows, own)

    def _counted(self, feature: NamedFeature, event: Event, counts: Callable[[Row, Row], bool]) -> list[Row]:
        """What a feature counts at an event, by time."""
        own = self._row(event)
        rows = [row for each in self.inside(feature, event) if counts(row := self._row(each), own)]
        return rows[-feature.feature.window.last :]

    def inside(self, feature: NamedFeature, event: Event) -> list[Event]:
        """The events in the window of a feature, by time, and by arrival where that is the same."""
        window = feature.feature.window
        begins_ms = event.time_ms - window.reach_ms
        if window.this is not None:
            begins_ms = day_begins_ms(local_day(event.time_ms, window.zone), window.zone)
        found = self.window(event, begins_ms, event.time_ms, window)[0]
        found.sort(key=lambda each: each.time_ms)
        if window.session_ms:
            steps_ms = [later.time_ms - earlier.time_ms for earlier, later in pairwise(found)]
            return found[max((at for at, step in enumerate(steps_ms, 1) if step > window.session_ms), default=0) :]
        return found

    def _row(self, event: Event) -> Row:
        return self.rows[event.event_id, event.time_ms, event.key]


def _longest_ms(rules: Iterable[Rule], fields: tuple[str, ...]) -> int:
    """The longest window that rules need of a group."""
    lengths = [rule.window.begins_ms for rule in rules if rule.window is not None]
    for rule in rules:
        lengths += [
            each.feature.window.begins_ms
            for each in rule.named_features()
            if frozenset(each.fields) == frozenset(fields)
        ]
    return max(lengths, default=0)


def local_day(time_ms: int, zone: str) -> date:
    """The day that the clocks of a zone show."""
    return (EPOCH + timedelta(milliseconds=time_ms)).astimezone(ZoneInfo(zone)).date()


def day_begins_ms(day: date, zone: str) -> int:
    """When a day begins in a zone."""
    return round(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def of_periods(written: Mapping[str, Any], rows: list[Row], own: Row) -> Any:
    """What a function makes of the values of whole periods before that of the event."""
    inner, own_ms = written["of"], own["t"]
    length, every = (parse_duration_ms(text) for text in (written["window"], inner["every"]))
    numbers = range(length // every, -1, -1)
    borders = [own_ms // every * every - number * every for number in numbers]
    if "zone" in inner:
        today = local_day(own_ms, inner["zone"])
        borders = [day_begins_ms(today - timedelta(days=number), inner["zone"]) for number in numbers]
    inside = [row for row in rows if borders[0] <= row["t"] < borders[-1]]
    first_ms, values = min((row["t"] for row in inside), default=borders[-1]), []
    for begin, end in pairwise(borders):
        if end > first_ms:
            of_period = [row for row in inside if begin <= row["t"] < end]
            of = inner.get("of")
            values.append(len(of_period) if of is None else sum(row[of] for row in of_period if row[of] is not None))
    if not values:
        return None
    assert written["function"] in ("avg", "max"), written
    return max(values) if written["function"] == "max" else decimal_of(Fraction(sum(values), len(values)), 6)


def is_last_step(rows: list[Row], steps: list[Callable[[Row], bool]], without: Callable[[Row], bool]) -> bool:
    """Whether the last event of a window is the last step: others came before it in order, each an event of its own.

    `chains` has, by how many steps have been made, the latest event at which such a chain begins.
    """
    chains: list[int | None] = [None] * len(steps)
    for at, row in enumerate(rows[:-1]):
        if without(row):
            chains = [None] * len(steps)  # it must not come between; a chain may begin with it
            chains[1] = at if steps[0](row) else None
            continue
        for made in range(len(steps) - 1, 0, -1):
            if steps[made - 1](row) and (made == 1 or chains[made - 1] is not None):
                chains[made] = at if made == 1 else chains[made - 1]
    return chains[-1] is not None and steps[-1](rows[-1])


def unanswered_s(feature: Feature, came: list[Row], own: Row, written: Mapping[str, Any]) -> Decimal | None:
    """How many seconds before an event the first step was whose time is over with it, unanswered.

    It was not over with the latest event before; one whose place this event has taken does not count.
    """
    (step,), without = step_tests(written)
    assert feature.within_ms is not None
    for at, row in enumerate(came):
        last_ms = row["t"] + feature.within_ms
        is_told = came[-1]["t"] <= last_ms < own["t"] and own["t"] - row["t"] <= feature.window.reach_ms
        if step(row) and is_told and not any(without(each) and each["t"] <= last_ms for each in came[at + 1 :]):
            return Decimal(own["t"] - row["t"]) / 1000
    return None


def decimal_of(number: Fraction, digits: int) -> Decimal:
    """A number at so many digits after the point, half to even."""
    return Decimal(round(number * 10**digits)).scaleb(-digits)


def decayed(feature: Feature, rows: list[Row], own: Row) -> Decimal | None:
    """A sum in which an event counts half for each half-life that it is older."""
    assert feature.half_life is not None
    if feature.of is not None and not rows:
        return None
    with localcontext() as context:
        context.prec = 60
        weights = [Decimal(weight(own["t"] - row["t"], feature.half_life)).scaleb(-9) for row in rows]
        values = [1 if feature.of is None else row[feature.of] for row in rows]
        return sum((value * each for value, each in zip(values, weights, strict=True)), Decimal(0))


def weight(age_ms: int, half_life_ms: int) -> int:
    """A half for each half-life, in billionths: by floats unless these leave open how it is rounded."""
    billionths = 2.0 ** (-age_ms / half_life_ms) * 1e9
    if abs(billionths % 1 - 0.5) > 0.001:
        return round(billionths)
    return round(Decimal(2) ** (Decimal(-age_ms) / half_life_ms) * 10**9)


def computed(feature: Feature, rows: list[Row], own: Row) -> Any:
    """What a function makes of the events of a window, up to the event itself."""
    function, of = feature.function, feature.of
    if function.startswith("decayed"):
        return decayed(feature, [row for row in rows if of is None or row[of] is not None], own)
    if function in OF_EACH_EVENT:
        counted = [row for row in rows if of is None or row[of] is not None]
        before = [row | {"time": row["t"]} for row in counted if row is not own]
        timed = own | {"time": own["t"]}
        seen = Seen(timed, [*before, timed][: len(counted)], before, of, half_life=feature.half_life or 1)
        value = OF_EACH_EVENT[function].value(seen)
        return (
            value
            if value is None
            else decimal_of(Fraction(value), OF_EACH_EVENT[function].digits(SCALES.get(of or "", 0)))
        )
    values = [row[of] for row in rows if row[of] is not None] if of is not None else []
    if function == "count":
        return len(rows)
    if function == "is_first":
        return len(rows) == 1
    if function == "count_distinct":
        return len(set(values))
    if function == "sum":
        return sum(values) if values else None
    if function == "max":
        return max(values, default=None)
    if function == "previous":
        before = [row[of] for row in rows if row is not own and row[of] is not None]
        return before[-1] if before else None
    assert function == "avg", function
    with localcontext() as context:
        context.prec = 60
        return (sum(values) / len(values)).quantize(Decimal(1).scaleb(-8), ROUND_HALF_EVEN) if values else None


def key_fields(fields: Iterable[str], asks: bool) -> dict[str, str]:
    """By field of a key, which field of an event is its value: of one that counts, or of one that asks."""
    pairs = [field.replace("alerts.", "").split(" AS ") for field in fields]
    return {pair[-1]: pair[0 if asks else -1] for pair in pairs}


def key_of(row: Mapping[str, Any], fields: Iterable[str], asks: bool = False) -> str:
    """The key of an event in a group, in a form that does not depend on the order of its fields."""
    return key_text({field: row[name] for field, name in key_fields(fields, asks).items()})


def key_text(values: Mapping[str, Any]) -> str:
    """A key of these values."""
    return repr(sorted(values.items()))

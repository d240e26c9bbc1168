"""One group of a job as lists of events, under rules and settings that change: the oracle's side of a timeline.

All events stay as they are, whatever the precision. What is too late, a repeat or a collision follows from the clock of
a key and the settings in force; the value of a window is a loop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

from buckets.config.engine import EngineSettings
from buckets.rules.feature import Feature, NamedFeature, Window
from buckets.rules.group import Group
from buckets.rules.rule import Rule
from tests.oracle import Event, Oracle, Outcome, fits, tiers_of, width_at
from tests.walk.catalogue import counted_by

Row = dict[str, Any]
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

    def take(self, event: Event, row: Row) -> Outcome:
        """Take in an event."""
        events = self.events.get(event.key, [])
        if len(events) > MANY:
            oldest_ms = self.clock_ms[event.key] - KEPT_MS if event.key in self.clock_ms else event.time_ms - KEPT_MS
            kept = [each for each in events if each.time_ms >= oldest_ms]
            if len(kept) < len(events) // 2:
                self.events[event.key] = kept
        self._before_ms = dict(self.reset_ms)
        self.rows.setdefault((event.event_id, event.time_ms, event.key), row)
        return self.arrive(event)

    def conditions_beyond(self, event: Event, clock: int | None) -> list[str]:
        return [
            rule.rule_id
            for rule in self.conditions
            for feature in rule.named_features()
            if frozenset(feature.fields) == self.fields and self.reaches(feature.feature, event, clock)
            if feature.feature.function in ("sum", "avg") and not fits(self._sum(rule, feature, event))
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
        inside = [each for each in self.events[event.key] if edge <= each.time_ms <= event.time_ms - of.offset_ms]
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

    def evaluates(self, event: Event, clock_ms: int | None, outcome: Outcome) -> bool:
        """Whether rules with features are evaluated at an event."""
        if outcome.outcome == "late":
            is_raw = clock_ms is None or width_at(self.tiers, event.time_ms, clock_ms) is None
            return self.late == "evaluate" and is_raw and outcome.applied
        return outcome.outcome == "evaluated"

    def reaches(self, feature: Feature, event: Event, clock_ms: int | None) -> bool:
        """Whether a feature is evaluated at an event."""
        return self._is_whole(feature.window, event, clock_ms, feature.needs_raw_events)

    def feature(self, feature: NamedFeature, event: Event, counts: Callable[[Row, Row], bool]) -> Any:
        """The value of a feature at an event."""
        rows = self._counted(feature, event, counts)
        return computed(feature.feature.function, rows, feature.feature.of, self._row(event))

    def _counted(self, feature: NamedFeature, event: Event, counts: Callable[[Row, Row], bool]) -> list[Row]:
        """What a feature counts at an event, by time."""
        own = self._row(event)
        rows = [row for each in self.inside(feature, event) if counts(row := self._row(each), own)]
        return rows[-feature.feature.window.last :]

    def inside(self, feature: NamedFeature, event: Event) -> list[Event]:
        """The events in the window of a feature, by time, and by arrival where that is the same."""
        window = feature.feature.window
        found = self.window(event, event.time_ms - window.reach_ms, event.time_ms, window)[0]
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


def computed(function: str, rows: list[Row], of: str | None, own: Row) -> Any:
    """What a function makes of the events of a window, up to the event itself."""
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


def key_of(row: Mapping[str, Any], fields: Iterable[str]) -> str:
    """The key of an event in a group, in a form that does not depend on the order of its fields."""
    return repr(sorted((name, row[name]) for name in fields))

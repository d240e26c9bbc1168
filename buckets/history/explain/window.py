"""A feature over its window: the events in it, which of them count, and the value that they make."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from buckets.aggregates.plain import CountedEvents, PlainValue
from buckets.duration import format_duration
from buckets.history.explain.condition import Computation
from buckets.history.explain.event_outcome import IN_TIMELINE
from buckets.history.explain.explanation import FeatureThen, RecordedValue, WindowArrival, compare
from buckets.history.explain.history_lookup import Arrivals, Flags, Int64s, Past
from buckets.history.explain.key import KeyHistory, Target, find_group
from buckets.numbers.fixed_point import format_scaled
from buckets.rules.filter import describe_filter
from buckets.rules.group import COUNT_TRACK
from buckets.rules.rule import Rule

_NOTES: Final = {
    "late": "came late",
    "repeat": "repeat of {other}: does not count again",
    "collides": "shares its time with {other}",
    "too late": "came too late to be kept",
    "dropped": "came late, and the job drops late events",
    "not kept": "shares its time with {other}, which is kept instead",
    "replaced": "replaced by {other}, which has its time",
    "refused": "a sum would have passed 64 bits",
    "left out": "the filter of the rule leaves it out",
    "malformed": "a field that the rules need is missing",
    "before": "came before the rule was kept",
    "not yet": "had not arrived yet",
}


@dataclass(frozen=True)
class Recomputed:
    """A feature as it is computed again."""

    feature: FeatureThen  # what is shown of it
    plain: PlainValue  # its value to the last digit


def explain_window(
    past: Past,
    rule: Rule,
    computed: Computation,
    history: KeyHistory,
    recorded: RecordedValue | None,
    reset_ms: int | None,
    most: int | None,
) -> Recomputed:
    """Compute a feature again from what arrived.

    Args:
        past: the past.
        rule: the rule.
        computed: the feature.
        history: of its key, at least as far back as its window.
        recorded: its value as the job has it; None where it is not known.
        reset_ms: the latest alert that has reset it; None for none.
        most: how many events are shown, half of them the first ones and half the last; None for all.
    """
    arrivals = history.arrivals
    window = _WindowThen.of(past, rule, computed, history, reset_ms)
    measure = arrivals.schema.measures.get(computed.of or "")
    events = window.counted_events()
    plain = computed.aggregate.plain(events, 0 if measure is None else measure.scale)
    listed = window.listed(rule, _so_far(computed, history, window.counted, events), most)
    feature = replace(
        _feature(computed, arrivals, history.target, plain, recorded),
        reset_ms=window.reset_ms,
        count=len(window.counted),
        **listed,
    )
    return Recomputed(feature, plain)


def outside_of_group(computed: Computation, target: Target, recorded: RecordedValue | None) -> Recomputed:
    """Explain a feature at an event that does not belong to its group."""
    lacking = ", ".join(field for field in computed.fields if target.value(field) is None)
    plain = PlainValue(None, None, f"{lacking} is missing or null, and the feature groups by it")
    return Recomputed(_feature(computed, target.arrivals, 0, plain, recorded), plain)


def _feature(
    computed: Computation, arrivals: Arrivals, row: int, plain: PlainValue, recorded: RecordedValue | None
) -> FeatureThen:
    """Return a feature at an arrival, with a window in which nothing is."""
    end_ms = int(arrivals.times_ms[row])
    return FeatureThen(
        name=computed.name,
        phrase=computed.phrase,
        key={field: arrivals.shown(field, row) for field in computed.fields},
        where=describe_filter(computed.where or computed.group_where),
        window=format_duration(computed.window.length_ms),
        left=computed.window.left,
        start_ms=end_ms - computed.window.length_ms,
        end_ms=end_ms,
        reset_ms=None,
        entries=(),
        left_out=0,
        over=None,
        fates={},
        count=0,
        value=plain.shown,
        why_null=plain.why_null,
        recorded=recorded,
        comparison=compare(plain, recorded),
        unit=computed.of,
    )


@dataclass(frozen=True)
class _WindowThen:
    """A window: what arrived with a time in it, and which of that a feature counts."""

    computed: Computation  # the feature
    history: KeyHistory  # of its key
    rows: Int64s  # what arrived, by time and number, as indices into the arrivals of the key
    counted: Int64s  # those that count
    reset_ms: int | None  # the alert in the window that has reset it; None for none

    @staticmethod
    def of(past: Past, rule: Rule, computed: Computation, history: KeyHistory, reset_ms: int | None) -> "_WindowThen":
        """Look at the window of the event that a history is of."""
        arrivals = history.arrivals
        end_ms = int(arrivals.times_ms[history.target])
        start_ms = computed.start_ms(end_ms)
        if reset_ms is not None and reset_ms < start_ms:
            reset_ms = None
        rows = np.flatnonzero((arrivals.times_ms >= start_ms) & (arrivals.times_ms <= end_ms))
        rows = rows[np.lexsort((arrivals.numbers[rows], arrivals.times_ms[rows]))]
        counts = _counting(past, rule, computed, history, rows) & _with_value(computed, history, rows)
        if reset_ms is not None:
            counts &= arrivals.times_ms[rows] > reset_ms
        return _WindowThen(computed, history, rows, rows[counts], reset_ms)

    def counted_events(self) -> CountedEvents:
        """Return the events that count, by time."""
        arrivals, counted = self.history.arrivals, self.counted
        own = np.flatnonzero(counted == self.history.target)
        values: list[Any] = [None] * len(counted)
        if self.computed.of is not None:
            values = arrivals.columns()[self.computed.of].take(counted).to_pylist()
        end_ms = int(arrivals.times_ms[self.history.target])
        return CountedEvents(arrivals.times_ms[counted].tolist(), values, int(own[0]) if len(own) else None, end_ms)

    def listed(self, rule: Rule, so_far: Mapping[int, str], most: int | None) -> dict[str, Any]:
        """Return the events that are shown, how many are not, and how many there are of each fate."""
        counting, shown, over = set(self.counted.tolist()), _shown(self.rows, most), _over_from(rule, so_far)
        fates = ((str(self.history.fates[row]), row in counting) for row in self.rows.tolist())

        def entry(row: int) -> WindowArrival:
            return self._entry(row, row in counting, so_far.get(row))

        return {
            "entries": tuple(map(entry, shown)),
            "over": None if over is None else entry(over),
            "left_out": len(self.rows) - len(shown),
            "fates": dict(
                Counter(fate if counts or fate not in IN_TIMELINE else "does not count" for fate, counts in fates)
            ),
        }

    def _entry(self, row: int, counts: bool, so_far: str | None) -> WindowArrival:
        arrivals, of = self.history.arrivals, self.computed.of
        source, _, position = arrivals.origins[row]
        return WindowArrival(
            event_id=str(arrivals.ids[row].as_py()),
            time_ms=int(arrivals.times_ms[row]),
            value=None if of is None else _text(arrivals.columns()[of][row].as_py(), of, arrivals),
            batch_id=int(arrivals.batches[row]),
            source=source,
            position=position,
            ingested_ms=arrivals.ingested_ms[row].as_py(),
            fate=str(self.history.fates[row]),
            counts=counts,
            note="; ".join(filter(None, self._notes(row, counts))),
            so_far=so_far,
        )

    def _notes(self, row: int, counts: bool) -> Iterator[str]:
        """Say what is to be said of an arrival; empty texts say nothing."""
        history, of = self.history, self.computed.of
        arrivals, fate, other = history.arrivals, history.fates[row], history.others.get(row)
        yield _NOTES.get(fate, "").format(other="" if other is None else arrivals.ids[other].as_py())
        if fate in IN_TIMELINE and not counts:
            if of is not None and not arrivals.columns()[of][row].is_valid:
                yield f"has no {of}"
            elif self.reset_ms is not None and arrivals.times_ms[row] <= self.reset_ms:
                yield "came before the alert that reset the rule"
            else:
                yield "the filter leaves it out"
        if row == history.target:
            yield "the event itself"


def _so_far(computed: Computation, history: KeyHistory, counted: Int64s, events: CountedEvents) -> dict[int, str]:
    """Return, by row, what a sum or a count comes to with it and all before it; empty of other aggregates."""
    if not computed.aggregate.adds_up:
        return {}
    if computed.of is None:
        return {row: f"{number}" for number, row in enumerate(counted.tolist(), 1)}
    sums = accumulate(events.values)
    return {
        row: str(_text(value, computed.of, history.arrivals)) for row, value in zip(counted.tolist(), sums, strict=True)
    }


def _over_from(rule: Rule, so_far: Mapping[int, str]) -> int | None:
    """Return the row from which on a sum or a count is over the limit of a rule; None where it is not."""
    limit, first = rule.limit, None
    if limit is None or limit.operator not in (">", ">="):
        return None
    for row, text in so_far.items():
        beyond = Decimal(text) - limit.value
        is_over = beyond > 0 or (beyond == 0 and limit.operator == ">=")
        first = (row if first is None else first) if is_over else None
    return first


def _counting(past: Past, rule: Rule, computed: Computation, history: KeyHistory, rows: Int64s) -> Flags:
    """Say which rows count: they are in the timeline, pass the filter, and came since the feature was kept."""
    counts = np.array([history.fates[row] in IN_TIMELINE for row in rows.tolist()], np.bool_)
    if computed.where:
        by_number = np.sort(rows)
        counts &= past.passing(computed.where, history.arrivals.take(by_number))[np.searchsorted(by_number, rows)]
    since = _kept_since(past, rule, computed, history)
    return counts if since is None else counts & (history.arrivals.batches[rows] >= since)


def _with_value(computed: Computation, history: KeyHistory, rows: Int64s) -> Flags:
    """Return which rows have a value in the feature's field; all do where it has none."""
    if computed.of is None:
        return np.ones(len(rows), np.bool_)
    column = history.arrivals.columns()[computed.of].take(pa.array(rows))
    has_value: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return has_value


def _kept_since(past: Past, rule: Rule, computed: Computation, history: KeyHistory) -> int | None:
    """Return the first batch whose events have what a feature needs; None where all have."""
    group = history.group
    if all(group.complete.get(track) is None for track in (COUNT_TRACK, *computed.tracks)):
        return None
    batch_id = int(history.arrivals.batches[history.target])
    version = past.cuts[batch_id].ruleset_version
    needed = {track for track in computed.tracks if track != COUNT_TRACK}
    while version > 1:
        earlier = find_group(past.recorded.rule_set(version - 1), rule, computed.fields, computed.group_where)
        is_filling = history.fill is not None and past.is_filling(history.fill, version - 1)
        if earlier is not None and is_filling and needed <= set(earlier.live_tracks):
            return None
        is_same = earlier is not None and (earlier.generation, earlier.timelines) == (group.generation, group.timelines)
        if earlier is None or not is_same or not needed <= set(earlier.live_tracks):
            break
        version -= 1
    return past.first_batch_of(version) if version > 1 else None


def _shown(rows: Int64s, most: int | None) -> list[int]:
    chosen: list[int] = rows.tolist()
    if most is None or len(chosen) <= most:
        return chosen
    first = most // 2
    return [*chosen[:first], *chosen[len(chosen) - (most - first) :]]


def _text(value: Any, field: str, arrivals: Any) -> str | None:
    measure = arrivals.schema.measures.get(field)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if measure is None else format_scaled(value, measure.scale)

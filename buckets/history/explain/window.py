"""A feature over its window: its events, which of them count, and the resulting value."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from buckets.aggregates.plain import CountedEvents, PlainValue
from buckets.aggregates.sequence import coming_between, latest_steps, left_alone
from buckets.arrays import Int64s
from buckets.expressions.expression import COMPARISONS
from buckets.history.explain.explanation import FeatureThen, RecordedValue, StepThen, WindowArrival, compare
from buckets.history.explain.history_lookup import Arrivals, Past
from buckets.history.explain.key import IN_TIMELINE, KeyHistory, Target, find_group
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import value_text
from buckets.rules.feature import Feature, NamedFeature
from buckets.rules.filter import describe_filter
from buckets.rules.group import COUNT_TRACK
from buckets.rules.role import asked_field, counted_field
from buckets.rules.rule import Rule
from buckets.rules.steps import Step, step_in_words

Recomputed = tuple[FeatureThen, PlainValue]
"""A recomputed feature: what an explanation shows, and the exact value."""
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


def explain_window(
    past: Past,
    rule: Rule,
    named: NamedFeature,
    history: KeyHistory,
    recorded: RecordedValue | None,
    reset_ms: int | None,
    most: int | None,
) -> Recomputed:
    """Compute a feature again from the arrivals.

    `history` covers at least the window. `reset_ms` is the latest alert that reset the feature. At most `most` events
    are shown, the first and the last half of that; None for all.
    """
    arrivals, of = history.arrivals, _field_of(named)
    window, time_ms = named.feature.window, int(arrivals.times_ms[history.target])
    (end_ms,) = window.ends_ms(arrivals.times_ms[[history.target]]).tolist()
    start_ms = int(window.starts_ms(np.array([time_ms]))[0]) + (window.left == "open")
    reset_ms = None if reset_ms is None or reset_ms < start_ms else reset_ms
    rows = np.flatnonzero((arrivals.times_ms >= start_ms) & (arrivals.times_ms <= end_ms))
    holds_its_event = window.holds_its_event and not history.asks
    rows = rows if holds_its_event else rows[rows != history.target]
    rows = rows[np.lexsort((arrivals.numbers[rows], arrivals.times_ms[rows]))]
    is_kept = np.array([history.fates[row] in IN_TIMELINE for row in rows.tolist()], np.bool_)
    borders_ms = window.counted_borders_ms(time_ms, arrivals.times_ms[rows[is_kept]])
    counts = is_kept.copy()
    if named.counted:
        counts &= past.passing(named.counted, arrivals.take(rows))
    if named.paired is not None:
        counts &= past.passing_beside(named.paired, arrivals, history.target, rows)
    since = _kept_since(past, rule, named, history)
    if since is not None:
        counts &= arrivals.batches[rows] >= since
    if window.session_ms:
        in_time = np.append(arrivals.times_ms[rows[is_kept]], [] if holds_its_event else [time_ms])
        begins = np.flatnonzero(np.diff(in_time) > window.session_ms)
        first_ms = in_time[begins[-1] + 1] if len(begins) else start_ms
        rows, counts = rows[arrivals.times_ms[rows] >= first_ms], counts[arrivals.times_ms[rows] >= first_ms]
    if window.last:
        is_last = np.cumsum(counts[::-1])[::-1] <= window.last
        rows, counts = rows[is_last], counts[is_last]
    if of is not None:
        counts &= arrivals.columns[of].take(pa.array(rows)).is_valid().to_numpy(zero_copy_only=False)
    if reset_ms is not None:
        counts &= arrivals.times_ms[rows] > reset_ms
    counted = rows[counts]
    values = [None] * len(counted) if of is None else arrivals.columns[of].take(pa.array(counted)).to_pylist()
    values = values if not named.feature.steps else _passing_steps(past, named.feature, arrivals, counted)
    own = np.flatnonzero(counted == history.target)
    if named.feature.within_ms and history.fates[history.target] == "late":
        own = own[:0]  # It does not move the clock.
    at = int(own[0]) if len(own) else None
    events = CountedEvents(arrivals.times_ms[counted].tolist(), values, at, time_ms, borders_ms)
    measure = arrivals.schema.measures.get(of or "")
    plain = named.feature.aggregate.plain(events, 0 if measure is None else measure.scale)
    so_far: dict[int, str] = {}
    if named.feature.aggregate.adds_up:
        sums = range(1, len(counted) + 1) if of is None else accumulate(values)
        so_far = {row: str(_text(total, of, arrivals)) for row, total in zip(counted.tolist(), sums, strict=True)}

    def entry(row: int) -> WindowArrival:
        return WindowArrival(
            **arrivals.arrived(row),
            value=None if of is None else _text(arrivals.columns[of][row].as_py(), of, arrivals),
            fate=history.fates[row],
            counts=row in counting,
            note="; ".join(filter(None, _notes(history, of, row, row in counting, reset_ms))),
            so_far=so_far.get(row),
        )

    counting, chosen, over = set(counted.tolist()), rows.tolist(), _over_from(rule, so_far)
    fates = Counter(
        "does not count" if history.fates[row] in IN_TIMELINE and row not in counting else history.fates[row]
        for row in chosen
    )
    shown = (
        chosen
        if most is None or len(chosen) <= most
        else [*chosen[: most // 2], *chosen[len(chosen) - most + most // 2 :]]
    )
    feature = _feature(
        rule,
        named,
        (arrivals, history.target),
        plain,
        recorded,
        reset_ms=reset_ms,
        entries=tuple(map(entry, shown)),
        left_out=len(chosen) - len(shown),
        steps=_steps(named.feature, arrivals, counted, events) if named.feature.steps else (),
        over=None if over is None else entry(over),
        fates=dict(fates),
        count=len(counted),
    )
    return feature, plain


def _passing_steps(past: Past, feature: Feature, arrivals: Arrivals, rows: Int64s) -> list[tuple[bool, ...]]:
    """Return as a tuple per arrival which steps of a sequence it passes, and whether it must not come between."""
    of_rows, none = arrivals.take(rows), np.zeros(len(rows), np.bool_)
    passing = [past.passing(where, of_rows) for where in feature.step_filters]
    passing.append(none if feature.between is None else past.passing(feature.between, of_rows))
    return [tuple(row) for row in np.stack(passing, axis=1).tolist()]


def _steps(feature: Feature, arrivals: Arrivals, rows: Int64s, events: CountedEvents) -> tuple[StepThen, ...]:
    """Return the latest steps of a sequence, and the forbidden events between them."""
    if events.own is None:
        return ()

    def at(step: Step, event: int | None, came_between: bool = False) -> StepThen:
        row = None if event is None else int(rows[event])
        event_id, time_ms = (None, None) if row is None else (arrivals.ids[row].as_py(), int(arrivals.times_ms[row]))
        return StepThen(step_in_words(step), event_id, time_ms, came_between)

    if feature.within_ms is not None:
        return tuple(at((feature.steps or ())[0], event) for event in left_alone(events, feature.within_ms))
    found = latest_steps(events.values, events.own)
    steps = [at(step, event) for step, event in zip(feature.steps or (), found, strict=True)]
    if feature.without is not None:
        steps += [at(feature.without, event, True) for event in coming_between(events.values, found, events.own)]
    return tuple(steps)


def outside_of_group(rule: Rule, named: NamedFeature, target: Target, recorded: RecordedValue | None) -> Recomputed:
    """Explain a feature at an event outside its group."""
    lacking = ", ".join(field for field in map(asked_field, named.fields) if target.value(field) is None)
    plain = PlainValue(None, None, f"{lacking} is missing or null, and the feature groups by it")
    return _feature(rule, named, (target.arrivals, 0), plain, recorded), plain


def _feature(
    rule: Rule,
    named: NamedFeature,
    at: tuple[Arrivals, int],
    plain: PlainValue,
    recorded: RecordedValue | None,
    **found: Any,
) -> FeatureThen:
    arrivals, row = at
    window = named.feature.window
    (start_ms,), (end_ms,) = (
        of(arrivals.times_ms[row : row + 1]).tolist() for of in (window.starts_ms, window.ends_ms)
    )
    return FeatureThen(
        name=named.name,
        phrase=rule.phrase(named),
        key={counted_field(field): arrivals.shown(asked_field(field), row) for field in named.fields},
        where=describe_filter(named.counted or named.group_where),
        window=window.text,
        left=window.left,
        start_ms=start_ms,
        end_ms=end_ms,
        value=plain.shown,
        why_null=plain.why_null,
        recorded=recorded,
        comparison=compare(plain, recorded),
        unit=_field_of(named),
        **found,
    )


def _field_of(named: NamedFeature) -> str | None:
    """Return the field of a feature; None if it only counts events."""
    return None if named.feature.aggregate.by_value else named.feature.of


def _notes(history: KeyHistory, of: str | None, row: int, counts: bool, reset_ms: int | None) -> Iterator[str]:
    """Yield remarks about an arrival; empty texts are ignored."""
    arrivals, fate, other = history.arrivals, history.fates[row], history.others.get(row)
    yield _NOTES.get(fate, "").format(other="" if other is None else arrivals.ids[other].as_py())
    if fate in IN_TIMELINE and not counts:
        if of is not None and not arrivals.columns[of][row].is_valid:
            yield f"has no {of}"
        elif reset_ms is not None and arrivals.times_ms[row] <= reset_ms:
            yield "came before the alert that reset the rule"
        else:
            yield "the filter leaves it out"
    if row == history.target:
        yield "the event itself"


def _over_from(rule: Rule, so_far: dict[int, str]) -> int | None:
    """Return the row from which on a sum or a count stays over a rule's limit; None if it is not over it at the end."""
    limit, first = rule.limit, None
    if limit is None or limit.operator not in (">", ">="):
        return None
    for row, text in reversed(so_far.items()):
        if not COMPARISONS[limit.operator](Decimal(text), limit.value):
            break
        first = row
    return first


def _kept_since(past: Past, rule: Rule, named: NamedFeature, history: KeyHistory) -> int | None:
    """Return the first batch whose events have all that a feature needs; None if all batches do."""
    group, needed = history.group, {track.name for _, part in named.parts() for track in part.tracks}
    if all(group.complete.get(track) is None for track in (COUNT_TRACK, *needed)):
        return None
    needed.discard(COUNT_TRACK)
    version = past.cuts[int(history.arrivals.batches[history.target])].ruleset_version
    while version > 1:
        earlier = find_group(past.recorded.rule_set(version - 1), rule, named.fields, named.group_where)
        if earlier is None or not needed <= set(earlier.live_tracks):
            break
        fills = past.versions.rule_set(version - 1).fills
        if history.fill is not None and any(fill.number == history.fill.number for fill in fills):
            return None
        if (earlier.generation, earlier.timelines) != (group.generation, group.timelines):
            break
        version -= 1
    return past.first_batch_of(version) if version > 1 else None


def _text(value: Any, field: str | None, arrivals: Arrivals) -> str | None:
    measure = arrivals.schema.measures.get(field or "")
    if value is None:
        return None
    return value_text(value) if measure is None else format_scaled(value, measure.scale)

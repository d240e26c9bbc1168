"""A feature over its window: the events in it, which of them count, and the value that they make."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from buckets.duration import format_duration
from buckets.history.explain.arrivals import Flags, Int64s
from buckets.history.explain.event_outcome import IN_TIMELINE
from buckets.history.explain.explanation import Comparison, Entry, FeatureThen, Recorded
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target, find_group
from buckets.history.explain.value import CountedEvents, PlainValue, plain_value
from buckets.numbers.fixed_point import format_scaled, readable
from buckets.rules.filter import Filter, describe_filter
from buckets.rules.rule import Rule
from buckets.rules.rule_set import COUNT_TRACK
from buckets.rules.window import Window

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
class Computation:
    """What is computed: a feature.

    Attributes:
        name: of the feature.
        function: what is computed.
        of: the field; None where only events are counted.
        per_cent: of a percentile.
        window: over which.
        fields: by which fields its group groups.
        group_where: the filter of its group.
        where: which events of the group it counts.
        phrase: it in English.
        tracks: what its timeline keeps for it, by name.
    """

    name: str
    function: str
    of: str | None
    per_cent: Decimal | None
    window: Window
    fields: tuple[str, ...]
    group_where: Filter
    where: Filter
    phrase: str
    tracks: tuple[str, ...]

    def start_ms(self, time_ms: int) -> int:
        """The first time that is in the window of an event."""
        return time_ms - self.window.reach_ms


def computations(rule: Rule) -> list[Computation]:
    """What a rule computes, in its order."""
    found = []
    for each in rule.named_features():
        feature = each.feature
        of = None if feature.function in ("count", "same_count", "is_first") else feature.of
        tracks = tuple(dict.fromkeys(track.name for _, part in each.parts() for track in part.tracks))
        found.append(
            Computation(
                name=each.name,
                function=feature.function,
                of=of,
                per_cent=feature.p,
                window=feature.window,
                fields=tuple(each.fields),
                group_where=each.group_where,
                where=each.counted,
                phrase=rule.phrase(each),
                tracks=tracks,
            )
        )
    return found


@dataclass(frozen=True)
class Found:
    """A feature as it is computed again.

    Attributes:
        feature: what is shown of it.
        plain: its value to the last digit.
    """

    feature: FeatureThen
    plain: PlainValue


def explain_window(
    past: Past,
    rule: Rule,
    computed: Computation,
    history: KeyHistory,
    recorded: Recorded | None,
    reset_ms: int | None,
    most: int | None,
) -> Found:
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
    arrivals, target = history.arrivals, history.target
    end_ms = int(arrivals.times_ms[target])
    start_ms = computed.start_ms(end_ms)
    in_window = (arrivals.times_ms >= start_ms) & (arrivals.times_ms <= end_ms)
    rows = np.flatnonzero(in_window)
    rows = rows[np.lexsort((arrivals.numbers[rows], arrivals.times_ms[rows]))]
    passed = past.passing(computed.where, arrivals.take(np.sort(rows))) if computed.where else None
    counts = _counting(past, rule, computed, history, rows, passed) & _with_value(computed, history, rows)
    since_ms = start_ms if reset_ms is None else max(start_ms, reset_ms + 1)
    counted = rows[counts & (arrivals.times_ms[rows] >= since_ms)]
    events = _events(computed, history, counted, end_ms)
    measure = arrivals.schema.measures.get(computed.of or "")
    plain = plain_value(computed.function, events, 0 if measure is None else measure.scale, computed.per_cent)
    feature = FeatureThen(
        name=computed.name,
        phrase=computed.phrase,
        key={field: arrivals.shown(field, target) for field in computed.fields},
        where=describe_filter(computed.where or computed.group_where),
        window=format_duration(computed.window.length_ms),
        left=computed.window.left,
        start_ms=end_ms - computed.window.length_ms,
        end_ms=end_ms,
        reset_ms=reset_ms if reset_ms is not None and reset_ms >= start_ms else None,
        **_listed(rule, computed, history, rows, counted, _so_far(computed, history, counted, events), reset_ms, most),
        count=len(counted),
        value=plain.shown,
        why_null=plain.why_null,
        recorded=recorded,
        comparison=compare(plain, recorded),
        unit=computed.of,
    )
    return Found(feature, plain)


def _so_far(computed: Computation, history: KeyHistory, counted: Int64s, events: CountedEvents) -> dict[int, str]:
    """By row, what a sum or a count comes to with it and all before it; empty of other functions."""
    if computed.function == "count":
        return {row: f"{number}" for number, row in enumerate(counted.tolist(), 1)}
    if computed.function != "sum":
        return {}
    assert computed.of is not None
    sums = accumulate(events.values)
    return {
        row: str(_text(value, computed.of, history.arrivals)) for row, value in zip(counted.tolist(), sums, strict=True)
    }


def _over_from(rule: Rule, so_far: Mapping[int, str]) -> int | None:
    """The row from which on a sum or a count is over the limit of a rule; None where it is not."""
    limit, first = rule.limit, None
    if limit is None or limit.operator not in (">", ">="):
        return None
    for row, text in so_far.items():
        beyond = Decimal(text) - limit.value
        is_over = beyond > 0 or (beyond == 0 and limit.operator == ">=")
        first = (row if first is None else first) if is_over else None
    return first


def _listed(
    rule: Rule,
    computed: Computation,
    history: KeyHistory,
    rows: Int64s,
    counted: Int64s,
    so_far: Mapping[int, str],
    reset_ms: int | None,
    most: int | None,
) -> dict[str, Any]:
    """The events of a window that are shown, how many are not, and how many there are of each fate."""
    fates = {row: str(history.fates[row]) for row in rows.tolist()}
    counting, shown = set(counted.tolist()), _shown(rows, most)
    start_ms = computed.start_ms(int(history.arrivals.times_ms[history.target]))
    over = _over_from(rule, so_far)

    def entry(row: int) -> Entry:
        found = _entry(computed, history, row, fates, row in counting, reset_ms, start_ms)
        return replace(found, so_far=so_far.get(row))

    return {
        "entries": tuple(map(entry, shown)),
        "over": None if over is None else entry(over),
        "left_out": len(rows) - len(shown),
        "fates": dict(Counter(_fate(fates[row], row in counting) for row in rows.tolist())),
    }


def _fate(fate: str, counts: bool) -> str:
    return fate if counts or fate not in IN_TIMELINE else "does not count"


def _counting(
    past: Past, rule: Rule, computed: Computation, history: KeyHistory, rows: Int64s, passed: Flags | None
) -> Flags:
    """Which rows of a window count: they are in the timeline, pass the filter, and came since the feature was kept."""
    counts = np.array([history.fates[row] in IN_TIMELINE for row in rows.tolist()], np.bool_)
    if passed is not None:
        by_number = np.searchsorted(np.sort(rows), rows)
        counts &= passed[by_number]
    since = _kept_since(past, rule, computed, history)
    return counts if since is None else counts & (history.arrivals.batches[rows] >= since)


def _with_value(computed: Computation, history: KeyHistory, rows: Int64s) -> Flags:
    """Which rows have a value of which a feature is; all do where it is of none."""
    if computed.of is None:
        return np.ones(len(rows), np.bool_)
    column = history.arrivals.columns()[computed.of].take(pa.array(rows))
    found: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def outside_of_group(computed: Computation, target: Target, recorded: Recorded | None) -> Found:
    """A feature at an event that does not belong to its group."""
    arrivals = target.arrivals
    lacking = ", ".join(field for field in computed.fields if target.value(field) is None)
    plain = PlainValue(None, None, f"{lacking} is missing or null, and the feature groups by it")
    feature = FeatureThen(
        name=computed.name,
        phrase=computed.phrase,
        key={field: arrivals.shown(field, 0) for field in computed.fields},
        where=describe_filter(computed.where or computed.group_where),
        window=format_duration(computed.window.length_ms),
        left=computed.window.left,
        start_ms=target.time_ms - computed.window.length_ms,
        end_ms=target.time_ms,
        reset_ms=None,
        entries=(),
        left_out=0,
        over=None,
        fates={},
        count=0,
        value=None,
        why_null=plain.why_null,
        recorded=recorded,
        comparison=compare(plain, recorded),
        unit=computed.of,
    )
    return Found(feature, plain)


def _kept_since(past: Past, rule: Rule, computed: Computation, history: KeyHistory) -> int | None:
    """The first batch whose events have what a feature needs; None where all have."""
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


def _events(computed: Computation, history: KeyHistory, counted: Int64s, end_ms: int) -> CountedEvents:
    """The events that count, by time."""
    own = np.flatnonzero(counted == history.target)
    values: list[Any] = [None] * len(counted)
    if computed.of is not None:
        values = history.arrivals.columns()[computed.of].take(counted).to_pylist()
    times_ms = history.arrivals.times_ms[counted].tolist()
    return CountedEvents(times_ms, values, int(own[0]) if len(own) else None, end_ms)


def _shown(rows: Int64s, most: int | None) -> list[int]:
    chosen: list[int] = rows.tolist()
    if most is None or len(chosen) <= most:
        return chosen
    first = most // 2
    return [*chosen[:first], *chosen[len(chosen) - (most - first) :]]


def _entry(
    computed: Computation,
    history: KeyHistory,
    row: int,
    fates: Mapping[int, str],
    counts: bool,
    reset_ms: int | None,
    start_ms: int,
) -> Entry:
    arrivals, fate = history.arrivals, fates[row]
    source, _, position = arrivals.origins[row]
    other = history.others.get(row)
    name = "" if other is None else str(arrivals.ids[other].as_py())
    note = _NOTES.get(fate, "").format(other=name)
    time_ms = int(arrivals.times_ms[row])
    if fate in IN_TIMELINE and not counts:
        was_reset = reset_ms is not None and start_ms <= time_ms <= reset_ms
        why = "came before the alert that reset the rule" if was_reset else "the filter leaves it out"
        if computed.of is not None and not arrivals.columns()[computed.of][row].is_valid:
            why = f"has no {computed.of}"
        note = f"{note}; {why}" if note else why
    if row == history.target:
        note = f"{note}; the event itself" if note else "the event itself"
    value = None if computed.of is None else _text(arrivals.columns()[computed.of][row].as_py(), computed.of, arrivals)
    return Entry(
        event_id=str(arrivals.ids[row].as_py()),
        time_ms=time_ms,
        value=value,
        batch_id=int(arrivals.batches[row]),
        source=source,
        position=position,
        ingested_ms=arrivals.ingested_ms[row].as_py(),
        fate=fate,
        counts=counts,
        note=note,
    )


def _text(value: Any, field: str, arrivals: Any) -> str | None:
    measure = arrivals.schema.measures.get(field)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if measure is None else format_scaled(value, measure.scale)


def compare(plain: PlainValue, recorded: Recorded | None) -> Comparison:
    """A value that is computed again, beside the recorded one."""
    if recorded is None:
        return Comparison(None, None, "no value is recorded to compare it with")
    again = plain.shown
    equal = _same(again, recorded.value)
    words = _words(again)
    if equal:
        return Comparison(True, None if recorded.exact else True, f"computed again: {words}, equal to the last digit")
    if recorded.exact and recorded.warm:
        sentence = f"computed again: {words}, and {_words(recorded.value)} is recorded: they differ"
        return Comparison(False, None, sentence, is_fault=True)
    if not recorded.exact:
        within = _is_within(again, recorded)
        bounds = f"{_words(recorded.lower)} and {_words(recorded.upper)}"
        lies = "within the recorded bounds" if within else "outside the recorded bounds"
        sentence = f"computed again: {words}, {lies} {bounds} (of {_words(recorded.value)})"
        return Comparison(False, within, sentence, is_fault=recorded.warm and not within)
    sentence = (
        f"computed again from all that arrived: {words}; {_words(recorded.value)} is recorded, whose window was not "
        "complete"
    )
    return Comparison(False, None, sentence)


def _same(again: Decimal | bool | None, recorded: str | bool | None) -> bool:
    if again is None or recorded is None or isinstance(again, bool) or isinstance(recorded, bool):
        return again is recorded or (again == recorded and isinstance(again, bool) == isinstance(recorded, bool))
    return again == Decimal(recorded)


def _is_within(again: Decimal | bool | None, recorded: Recorded) -> bool:
    if again is None:
        return True
    if isinstance(again, bool):
        return again in (recorded.lower, recorded.upper)
    return Decimal(str(recorded.lower)) <= again <= Decimal(str(recorded.upper))


def _words(value: Decimal | str | bool | None) -> str:
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(value)

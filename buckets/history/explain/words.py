"""Writes explanations line by line, for a terminal and for pages, with a chart of each window."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from buckets.history.explain.explanation import ConditionPart, Explanation, FeatureThen, RuleThen, WindowArrival
from buckets.moment import exact_time_text
from buckets.numbers.fixed_point import readable
from buckets.pages.page import Mark, round_times, round_values
from buckets.printable import field_words


def headline(explanation: Explanation) -> str:
    """Summarise the outcome for the event in one line."""
    rule = "" if explanation.rule is None else f" of rule {explanation.rule.rule_id}"
    if explanation.alert_id is not None:
        became = "held back" if explanation.outcome == "held back" else "raised"
        kind = "Shadow alert" if explanation.outcome == "shadow alert" else "Alert"
        return f"{kind} {explanation.alert_id}{rule}: {became}"
    what = {"alert": "fired", "did not fire": "did not fire", "not evaluated": "was not evaluated"}
    of_rule = "No rule" if explanation.rule is None else f"Rule {explanation.rule.rule_id}"
    event = "" if explanation.event is None else f" at event {explanation.event.event_id}"
    return f"{of_rule} {what.get(explanation.outcome, explanation.outcome)}{event}"


def _event_lines(explanation: Explanation) -> Iterator[str]:
    event = explanation.event
    if explanation.key:
        yield "key: " + ", ".join(f"{name} {value}" for name, value in explanation.key.items())
    if event is None:
        return
    taken = "" if event.ingested_ms is None else f", taken in at {exact_time_text(event.ingested_ms)}"
    yield f"event {event.event_id} at {exact_time_text(event.time_ms)}"
    yield f"arrived in batch {event.batch_id} from {event.source}:{event.position}{taken}"
    if event.came > 1:
        yield f"it came {event.came} times; this is the first"
    own = (event.event_id, event.time_ms)
    others = [(name, value) for name, value in event.fields.items() if value not in (None, *own)]
    yield "fields: " + ", ".join(f"{name} {field_words(value)}" for name, value in others)


def _rule_lines(rule: RuleThen) -> Iterator[str]:
    yield rule.sentence
    when = "" if rule.made_ms is None else f" at {exact_time_text(rule.made_ms)}"
    by = f" by {rule.author}" if rule.author else ""
    why = f": {rule.reason}" if rule.reason else ""
    yield f"{rule.state}, version {rule.version}, made{by}{when}{why}"
    if rule.lists:
        yield "lists: " + ", ".join(f"{name} in version {version}" for name, version in rule.lists.items())


def _feature_lines(feature: FeatureThen) -> Iterator[str]:
    bound = "" if feature.left == "closed" else " (not in it)"
    yield f"{feature.window} from {exact_time_text(feature.start_ms)}{bound} to {exact_time_text(feature.end_ms)}"
    if feature.key:
        yield "of " + ", ".join(f"{name} {value}" for name, value in feature.key.items())
    if feature.where:
        yield f"where {feature.where}"
    if feature.reset_ms is not None:
        yield f"reset by the alert at {exact_time_text(feature.reset_ms)}: only later events count"
    why = f" ({feature.why_null})" if feature.why_null else ""
    yield f"{feature.comparison.sentence}{why}"
    counted = f"{feature.count:,} {'event counts' if feature.count == 1 else 'events count'}"
    late = feature.fates.get("late", 0)
    others = {name: number for name, number in feature.fates.items() if name not in ("counts", "late", "collides")}
    fates = [f"{late:,} of them came late"] if late else []
    yield "; ".join([counted, *fates, *(f"{number:,} {name}" for name, number in others.items())])
    for step in feature.steps:
        at = "" if step.time_ms is None else f"event {step.event_id} at {exact_time_text(step.time_ms)}"
        yield f"{step.name}: {at or 'none'}{' came between' if step.came_between else ''}"
    if feature.over is not None:
        at = f"event {feature.over.event_id} at {exact_time_text(feature.over.time_ms)}"
        yield f"over the limit from {at} on, where it comes to {number_text(feature.over.so_far)}"


def number_text(value: str | None) -> str:
    """Format a number for people, and return any other text unchanged."""
    value = value or ""
    return readable(value) if value.replace(".", "").lstrip("-").isdecimal() else value


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 1000, 240, 80, 20, 30
"""Of a chart, in units of its drawing; what is left of, right of and below the events."""


def _window_chart(feature: FeatureThen, explanation: Explanation) -> dict[str, Any]:
    """Place the events of a window in its chart: over time, by value, or in one row where they have none."""
    heights = [_height(entry.value or "1") for entry in feature.entries]
    sums = [(entry.time_ms, float(entry.so_far)) for entry in feature.entries if entry.so_far is not None]
    has_numbers = feature.unit is not None or bool(sums)
    written = None if explanation.rule is None else explanation.rule.written.get("limit")
    limit = float(written["value"]) if written and feature.name == "value" and has_numbers else None
    levels = [0.0, *heights, *(level for _, level in sums), *([limit] if limit is not None else [])]
    low, high = min(levels), max(levels)
    span_ms = max(feature.end_ms - feature.start_ms, 1)

    def x(time_ms: int) -> float:
        return round(_LEFT + (time_ms - feature.start_ms) / span_ms * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(30 + (high - value) / ((high - low) or 1) * (_HEIGHT - _BOTTOM - 40), 1)

    marks = round_values(Fraction(low), Fraction(high)) if has_numbers and high > low else []
    steps, before = [(feature.start_ms, 0.0)] if sums else [], 0.0
    for time_ms, level in sums:
        steps += [(time_ms, before), (time_ms, level)]
        before = level

    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "time_marks": [Mark(x(time_ms), text) for time_ms, text in round_times(feature.start_ms, feature.end_ms)],
        "value_marks": [Mark(y(float(value)), text) for value, text in marks],
        "unit": feature.unit or ("events" if sums else ""),
        "sums": " ".join(f"{x(time_ms)},{y(level)}" for time_ms, level in steps),
        "left": x(feature.start_ms),
        "right": x(feature.end_ms),
        "zero": y(0.0),
        "reset": None if feature.reset_ms is None else x(feature.reset_ms),
        "limit": None if limit is None else {"y": y(limit), "text": f"limit {limit:,g}"},
        "events": [
            {"x": x(entry.time_ms), "y": y(height), "title": _title(entry), "kind": _kind(entry)}
            for entry, height in zip(feature.entries, heights, strict=True)
        ],
    }


def _kind(entry: WindowArrival) -> str:
    if not entry.counts:
        return "out"
    return f"{'late' if entry.fate == 'late' else 'in'}{' own' if 'the event itself' in entry.note else ''}"


def _height(value: str) -> float:
    """Return the height at which an event is drawn; only charts are inexact."""
    try:
        return float(value)
    except ValueError:
        return 1.0


def _title(entry: WindowArrival) -> str:
    value = f", {entry.value}" if entry.value else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"{entry.event_id}, {exact_time_text(entry.time_ms)}{value}{note}, arrived in batch {entry.batch_id}"


def _part_lines(part: ConditionPart, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Describe a condition and its parts with their depths; composite parts are named by their connective."""
    joins = {"all": "all of these", "any": "at least one of these", "not": "not this"}
    yield {"depth": depth, "truth": part.truth, "text": joins.get(part.kind, part.text)}
    for inner in part.parts:
        yield from _part_lines(inner, depth + 1)


def explained(explanation: Explanation) -> dict[str, Any]:
    """Return the texts that a terminal and a page show."""
    warmth, warm, rule = explanation.warmth, explanation.warm, explanation.rule
    if warmth and warm is False and warmth.startswith("complete"):
        warmth += "; but this key had been quiet for so long that it was forgotten, so something may be missing"
    elif warmth and warm is False:
        warmth += "; so something may be missing at this event"
    return {
        "headline": headline(explanation),
        "outcome": explanation.outcome,
        "is_faulty": explanation.is_faulty,
        "reasons": [reason.sentence for reason in explanation.reasons],
        "event": list(_event_lines(explanation)),
        "rule": None if rule is None else list(_rule_lines(rule)),
        "ruleset_version": None if rule is None else rule.ruleset_version,
        "warmth": warmth,
        "policy": [reason.sentence for reason in explanation.policy],
        "parts": [] if explanation.condition is None else list(_part_lines(explanation.condition)),
        "features": [
            (feature, list(_feature_lines(feature)), _window_chart(feature, explanation))
            for feature in explanation.features
        ],
        "time_text": exact_time_text,
        "notes": [*explanation.notes, *filter(None, [explanation.origin])],
    }

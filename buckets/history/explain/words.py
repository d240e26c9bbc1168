"""An explanation in words, line by line, for a terminal and for pages."""

from collections.abc import Iterator

from buckets.history.explain.explanation import ConditionPart, Explanation, FeatureThen, RuleThen
from buckets.moment import exact_time_text
from buckets.numbers.figures import readable
from buckets.printable import field_words


def headline(explanation: Explanation) -> str:
    """Return what came of the event, in one line."""
    rule = "" if explanation.rule is None else f" of rule {explanation.rule.rule_id}"
    if explanation.alert_id is not None:
        became = "held back" if explanation.outcome == "held back" else "raised"
        kind = "Shadow alert" if explanation.outcome == "shadow alert" else "Alert"
        return f"{kind} {explanation.alert_id}{rule}: {became}"
    what = {"alert": "fired", "did not fire": "did not fire", "not evaluated": "was not evaluated"}
    of_rule = "No rule" if explanation.rule is None else f"Rule {explanation.rule.rule_id}"
    event = "" if explanation.event is None else f" at event {explanation.event.event_id}"
    return f"{of_rule} {what.get(explanation.outcome, explanation.outcome)}{event}"


def event_lines(explanation: Explanation) -> Iterator[str]:
    """Describe the event and its key."""
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


def rule_lines(rule: RuleThen) -> Iterator[str]:
    """Describe the rule as it was, and who made it so."""
    yield rule.sentence
    when = "" if rule.made_ms is None else f" at {exact_time_text(rule.made_ms)}"
    by = f" by {rule.author}" if rule.author else ""
    why = f": {rule.reason}" if rule.reason else ""
    yield f"{rule.state}, version {rule.version}, made{by}{when}{why}"
    if rule.lists:
        yield "lists: " + ", ".join(f"{name} in version {version}" for name, version in rule.lists.items())


def warm_words(explanation: Explanation) -> str:
    """Return whether the windows of this event were complete, where that is not said already."""
    if explanation.warm is None:
        return ""
    if not explanation.warm and explanation.warmth.startswith("complete"):
        return "; but this key had been quiet for so long that it was forgotten, so something may be missing"
    return "" if explanation.warm or not explanation.warmth else "; so something may be missing at this event"


def part_lines(part: ConditionPart, depth: int = 0) -> Iterator[tuple[int, ConditionPart]]:
    """Return a condition and its parts, with how deep each lies."""
    yield depth, part
    for inner in part.parts:
        yield from part_lines(inner, depth + 1)


def part_text(part: ConditionPart) -> str:
    """Describe a part; one that joins others is named by how it does."""
    joins = {"all": "all of these", "any": "at least one of these", "not": "not this"}
    return joins.get(part.kind, part.text)


def feature_lines(feature: FeatureThen) -> Iterator[str]:
    """Describe the window, what it holds, and the value."""
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
    yield counted_words(feature)
    if feature.over is not None:
        at = f"event {feature.over.event_id} at {exact_time_text(feature.over.time_ms)}"
        yield f"over the limit from {at} on, where it comes to {number_text(feature.over.so_far)}"


def counted_words(feature: FeatureThen) -> str:
    """Say how many events count, and what became of the others."""
    counted = f"{feature.count:,} {'event counts' if feature.count == 1 else 'events count'}"
    late = feature.fates.get("late", 0)
    fates = [f"{late:,} of them came late"] if late else []
    others = {name: number for name, number in feature.fates.items() if name not in ("counts", "late", "collides")}
    return "; ".join([counted, *fates, *(f"{number:,} {name}" for name, number in others.items())])


def number_text(value: str | None) -> str:
    """Return a value as people read it; what is no number as it is."""
    value = value or ""
    return readable(value) if value.replace(".", "").lstrip("-").isdecimal() else value

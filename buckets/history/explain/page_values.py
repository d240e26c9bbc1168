"""What pages show of an explanation: its lines, and a chart of each window."""

from typing import Any

from buckets.history.explain.chart import window_chart
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.words import (
    event_lines,
    feature_lines,
    headline,
    part_lines,
    part_text,
    rule_lines,
    warm_words,
)
from buckets.moment import exact_time_text


def page_values(explanation: Explanation) -> dict[str, Any]:
    """Return the values of a template."""
    parts = part_lines(explanation.condition) if explanation.condition is not None else ()
    return {
        "headline": headline(explanation),
        "outcome": explanation.outcome,
        "reasons": [reason.sentence for reason in explanation.reasons],
        "event": list(event_lines(explanation)),
        "rule": None if explanation.rule is None else list(rule_lines(explanation.rule)),
        "ruleset_version": None if explanation.rule is None else explanation.rule.ruleset_version,
        "warmth": f"{explanation.warmth}{warm_words(explanation)}" if explanation.warmth else "",
        "policy": [reason.sentence for reason in explanation.policy],
        "parts": [{"depth": depth, "truth": part.truth, "text": part_text(part)} for depth, part in parts],
        "features": [
            (feature, list(feature_lines(feature)), window_chart(feature, explanation))
            for feature in explanation.features
        ],
        "time_text": exact_time_text,
        "notes": [*explanation.notes, *([explanation.origin] if explanation.origin else [])],
    }

"""A rule where a job reads it, with what is known of it, as programs get it."""

from typing import Any

from buckets.changes.completion import Completion
from buckets.changes.origin import KeptRule
from buckets.moment import iso_text
from buckets.rules.policy_words import policy_sentence


def listed_rule(kept: KeptRule, completion: Completion) -> dict[str, Any]:
    """Return a rule with what is known of it; moments are ISO 8601."""
    rule, warmth = kept.rule, completion.warmth
    shown: dict[str, Any] = {
        "rule_id": rule.rule_id,
        "version": rule.version,
        "state": rule.state,
        "sentence": rule.sentence(),
        "policy": policy_sentence(rule),
        "author": kept.author,
        "reason": kept.reason,
        "changed_at": _iso(kept.time_ms),
        "completeness": completion.words,
        "complete_since": None,
        "complete_from": None,
        "warm": [],
        "latest_event_time": None,
        "backfill": [fill.to_json() for fill in completion.fills],
    }
    if warmth is not None:
        now = warmth.current
        shown |= {
            "complete_since": None if now is None else _iso(now.from_ms),
            "complete_from": _iso(warmth.complete_from_ms),
            "warm": [{"from": _iso(stretch.from_ms), "until": _iso(stretch.until_ms)} for stretch in warmth.warm],
            "latest_event_time": _iso(warmth.latest_ms),
        }
    return shown | {"rule": rule.model_dump(by_alias=True, mode="json")}


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_text(time_ms)

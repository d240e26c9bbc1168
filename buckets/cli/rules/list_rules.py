"""The command `buckets rules list`: rules where a job reads them, their policies, and since when they are complete."""

from typing import Any

from buckets.changes.completion import Completion, read_completions
from buckets.changes.origin import KeptRule
from buckets.cli.console import Listing
from buckets.cli.options import AsJson
from buckets.cli.rules.request import Conf, rules_of
from buckets.cli.rules.view import rules_table
from buckets.config.job import load_job
from buckets.moment import iso_text
from buckets.rules.policy_words import policy_sentence


def list_rules(conf: Conf, as_json: AsJson = False) -> None:
    """Show the rules where a job reads them, and since when each is complete.

    A rule is complete for events whose windows reach no further back than what
    is kept for it. "complete" alone is since the first event. Times are event
    times in UTC.

    \b
    Examples:
      buckets rules list --conf conf/kafka.yaml
      buckets rules list --conf conf/kafka.yaml --json
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    rules = rules_of(job)
    completions = read_completions(job, rules.rules)
    Listing(
        rules.kept,
        f"no rules in {rules.name}",
        f"{len(rules.kept)} rules of {rules.name}",
        lambda title, kept: rules_table(title, kept, completions),
    ).show((lambda kept: _as_json(kept, completions[kept.rule.rule_id])) if as_json else None)


def _as_json(kept: KeptRule, completion: Completion) -> dict[str, Any]:
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

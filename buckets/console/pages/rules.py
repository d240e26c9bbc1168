"""The page of all rules: what each says and does, how often it alerts, and how often it is right."""

from collections.abc import Mapping

from buckets.changes.versions import read_completions
from buckets.config.job import kept_results
from buckets.console.pages.now import bars, interval
from buckets.console.view import Asked, View
from buckets.outputs.columns import ALERTS, SHADOW_ALERTS
from buckets.outputs.recorded_outputs import alerts_by_day
from buckets.questions.listed_alerts import precisions
from buckets.rules.release import stage
from buckets.rules.rule import policy_sentence

DAYS = 30


def page(asked: Asked) -> View:
    """List all rules."""
    site = asked.site
    rules = site.rules()
    completions, found = read_completions(site.job, rules.rules), precisions(site.job)
    by_day = days_of_rules(asked)
    last = max((day for days in by_day.values() for day in days), default=0)
    rows = [
        {
            "rule": kept.rule,
            "stage": stage(kept.rule),
            "policy": policy_sentence(kept.rule),
            "warmth": completions[kept.rule.rule_id].words,
            "alerts": sum(by_day.get(kept.rule.rule_id, {}).values()),
            "bars": bars([by_day.get(kept.rule.rule_id, {}).get(day, 0) for day in range(last - DAYS + 1, last + 1)]),
            "precision": interval(found.get(kept.rule.rule_id)),
            "kept": kept,
        }
        for kept in rules.kept
    ]
    return View("rules.html", {"rows": rows, "place": rules.name, "days": DAYS, "has_alerts": bool(by_day)})


def days_of_rules(asked: Asked) -> Mapping[str, Mapping[int, int]]:
    """Return how many alerts each rule has on each of the latest days, in force and on trial."""
    folder = kept_results(asked.site.job)
    counts: dict[str, dict[int, int]] = {}
    tables = [] if folder is None else [folder / ALERTS, folder / SHADOW_ALERTS]
    for table in tables:
        for rule_id, days in alerts_by_day(table, DAYS).items():
            of_rule = counts.setdefault(rule_id, {})
            for day, alerts in days.items():
                of_rule[day] = of_rule.get(day, 0) + alerts
    return counts

"""The page of a rule: what it says, what has become of it, its latest alerts, and what can be done with it."""

from buckets.changes.versions import changes_of, read_completions, with_differences
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.console.pages.now import interval
from buckets.console.pages.plans import PLANS, actions
from buckets.console.pages.rules import DAYS, days_of_rules
from buckets.console.view import Asked, View
from buckets.moment import moment_ms
from buckets.outputs.recorded_outputs import has_alerts
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts, precisions
from buckets.rule_files.yaml_editor import rules_text
from buckets.rules.release import stage, stage_meaning
from buckets.rules.rule import policy_sentence

_ALERTS = 10
_CHANGES = 50


def page(asked: Asked) -> View:
    """Show a rule.

    Raises:
        BucketsError: there is none with this id where the job reads its rules.
    """
    site, rule_id = asked.site, asked.named("id")
    rules = site.rules()
    rule, folder, now_ms = rules.rule(rule_id), kept_results(site.job), epoch_ms()
    kept = next(each for each in rules.kept if each.rule.rule_id == rule_id)
    days = days_of_rules(asked).get(rule_id, {})
    latest = []
    if folder is not None and has_alerts(folder):
        latest = list_alerts(
            folder, AlertFilter(kind="all", rule=rule_id), None, given_findings(site.job), _ALERTS
        ).rows
    span = range(min(days, default=0), max(days, default=-1) + 1)
    return View(
        "rule.html",
        {
            "rule": rule,
            "kept": kept,
            "stage": stage(rule),
            "meaning": stage_meaning(rule) if rule.state in ("DRAFT", "SHADOW", "ACTIVE") else "",
            "policy": policy_sentence(rule),
            "warmth": read_completions(site.job, [rule])[rule_id].words,
            "precision": interval(precisions(site.job).get(rule_id)),
            "written": rules_text([rule]),
            "history": with_differences(changes_of(site.job, rule_id)[:_CHANGES]),
            "latest": latest,
            "days": DAYS,
            "by_day": {"time_s": [day * 86_400 for day in span], "alerts": [days.get(day, 0) for day in span]},
            "actions": [(what, words) for what, words in actions(rule) if asked.person.may(PLANS[what][1])],
            "snoozes": [
                {"snooze": snooze, "until_ms": moment_ms(snooze.until), "is_over": moment_ms(snooze.until) <= now_ms}
                for snooze in rule.snoozes
            ],
            "place": rules.name,
            "questions": site.questions.about(rule_id),
        },
    )

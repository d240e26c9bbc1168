"""Pages of rules: all rules, one with its history, and the editor, which checks a rule as it is typed."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from buckets.changes.typed_rule import read_rule
from buckets.changes.versions import changes_of, read_completions, with_differences
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.console.pages.alerts import latest_alerts
from buckets.console.pages.change import PLANS, actions
from buckets.console.pages.job import DAYS, ask, check_archived, columns_by_day
from buckets.console.view import Asked, Onward, View
from buckets.moment import moment_ms
from buckets.outputs.columns import ALERTS, SHADOW_ALERTS
from buckets.outputs.recorded_outputs import alerts_by_day
from buckets.questions.listed_alerts import AlertFilter, precisions
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from buckets.rules.revision import stage, stage_meaning
from buckets.rules.rule import policy_sentence

_ALERTS, _CHANGES = 10, 50
_NEW = """rules:
  - rule_id: my-rule
    state: DRAFT
    group_by: []
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: '>=', value: '10'}
"""


def listed(asked: Asked) -> View:
    """List all rules: the sentence of each, its number of alerts, and its precision."""
    site = asked.site
    rules, by_day = site.rules(), _days_of_rules(asked)
    completions, found = read_completions(site.job, rules.rules), precisions(site.job)
    last = max((day for days in by_day.values() for day in days), default=0)
    rows = []
    for kept in rules.kept:
        days = by_day.get(kept.rule.rule_id, {})
        rows.append(
            {
                "kept": kept,
                "stage": stage(kept.rule),
                "policy": policy_sentence(kept.rule),
                "warmth": completions[kept.rule.rule_id].words,
                "alerts": sum(days.values()),
                "days": [days.get(day, 0) for day in range(last - DAYS + 1, last + 1)],
                "precision": found.get(kept.rule.rule_id),
            }
        )
    return View("rules.html", rows=rows, place=rules.name, days=DAYS)


def _days_of_rules(asked: Asked) -> Mapping[str, Mapping[int, int]]:
    folder = kept_results(asked.site.job)
    counts = defaultdict[str, Counter[int]](Counter)
    for table in [] if folder is None else [folder / ALERTS, folder / SHADOW_ALERTS]:
        for rule_id, days in alerts_by_day(table, DAYS).items():
            counts[rule_id].update(days)
    return counts


def one(asked: Asked) -> View:
    """Show a rule: its sentence, its history, its latest alerts, and the available actions."""
    site, rule_id = asked.site, asked.named("id")
    rules, now_ms = site.rules(), epoch_ms()
    rule = rules.rule(rule_id)
    return View(
        "rule.html",
        rule=rule,
        kept=next(each for each in rules.kept if each.rule.rule_id == rule_id),
        stage=stage(rule),
        meaning=stage_meaning(rule) if rule.state in ("DRAFT", "SHADOW", "ACTIVE") else "",
        policy=policy_sentence(rule),
        warmth=read_completions(site.job, [rule])[rule_id].words,
        precision=precisions(site.job).get(rule_id),
        written=rules_text([rule]),
        history=with_differences(changes_of(site.job, rule_id)[:_CHANGES]),
        latest=latest_alerts(site, AlertFilter(kind="all", rule=rule_id), _ALERTS),
        by_day=columns_by_day(_days_of_rules(asked).get(rule_id, {})),
        actions=[(what, words) for what, words in actions(rule) if asked.person.may(PLANS[what][1])],
        snoozes=[
            {"snooze": snooze, "until_ms": moment_ms(snooze.until), "is_over": moment_ms(snooze.until) <= now_ms}
            for snooze in rule.snoozes
        ],
        place=rules.name,
        questions=site.questions.about(rule_id),
    )


def edit(asked: Asked) -> View:
    """Show a rule for editing, or a template for a new one."""
    rule_id, job = asked.named("id"), asked.site.job
    text = rules_text([asked.site.rules().rule(rule_id)]) if rule_id else _NEW
    return View("editor.html", text=text, rule_id=rule_id, is_archived=job.settings.archive is not None)


def schema(asked: Asked) -> dict[str, Any]:
    """Return the JSON schema of rules, by which the editor completes input."""
    return rule_file_schema(asked.site.job.event_schema)


def check(asked: Asked) -> View:
    """Return the faults of the typed text, as a part of the page."""
    report = asked.site.checks.check(_text(asked), asked.site.job, asked.person.name)
    return View("checked.html", **vars(report))


def backtest(asked: Asked) -> Onward:
    """Queue a backtest of the rule on the archive, also with other numbers if they are given."""
    typed = read_rule(_text(asked), asked.site.job)
    check_archived(asked.site.job)
    sweeps = [each.strip() for each in asked.given("sweep").split(";") if each.strip()]
    fields = {"text": _text(asked), "begin": asked.given("begin"), "end": asked.given("end"), "sweeps": sweeps}
    rule_id = typed.rules[0].rule_id
    title = f"What {rule_id} would have raised" + (f", with {'; '.join(sweeps)}" if sweeps else "")
    return ask(asked, title, rule_id, {"kind": "backtest", **fields})


def _text(asked: Asked) -> str:
    return next(iter(asked.form.get("text", ())), "")

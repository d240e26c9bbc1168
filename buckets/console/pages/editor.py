"""The page on which a rule is written: checked and tested as it is typed, tried on the archive, and saved."""

from typing import Any

from buckets.changes.typed_rule import read_rule
from buckets.console.pages.question import ask, check_archived
from buckets.console.view import Asked, Onward, View
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text

_NEW = """rules:
  - rule_id: my-rule
    state: DRAFT
    group_by: []
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: '>=', value: '10'}
"""


def page(asked: Asked) -> View:
    """Show a rule to be edited, or the beginning of a new one."""
    rule_id, job = asked.named("id"), asked.site.job
    text = rules_text([asked.site.rules().rule(rule_id)]) if rule_id else _NEW
    return View("editor.html", {"text": text, "rule_id": rule_id, "is_archived": job.settings.archive is not None})


def schema(asked: Asked) -> dict[str, Any]:
    """Return the JSON schema of rules, from which the page completes what is typed."""
    return rule_file_schema(asked.site.job.event_schema)


def check(asked: Asked) -> View:
    """Say what is wrong with what is typed, as a part of the page."""
    report = asked.site.checks.check(_text(asked), asked.site.job, asked.person.name)
    return View("checked.html", vars(report))


def backtest(asked: Asked) -> Onward:
    """Ask what the rule would have raised on the archive, with other numbers too if they are named."""
    typed = read_rule(_text(asked), asked.site.job)
    check_archived(asked.site.job)
    sweeps = [each.strip() for each in asked.given("sweep").split(";") if each.strip()]
    fields = {"text": _text(asked), "begin": asked.given("begin"), "end": asked.given("end"), "sweeps": sweeps}
    rule_id = typed.rule.rule_id
    title = f"What {rule_id} would have raised" + (f", with {'; '.join(sweeps)}" if sweeps else "")
    return ask(asked, title, rule_id, {"kind": "backtest", **fields})


def _text(asked: Asked) -> str:
    return next(iter(asked.form.get("text", ())), "")

"""The command `buckets verdicts`: what was found about alerts, and the alerts that wait for a verdict."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from buckets.changes.versions import check_known_rules
from buckets.cli.console import Listing, TextTable, newest_of
from buckets.cli.options import AsJson, JobConf
from buckets.config.job import Job, load_job, results_folder
from buckets.errors import BucketsError
from buckets.moment import iso_text, time_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import short_length
from buckets.printable import key_words, one_line, short_line
from buckets.verdicts.confirmed import RecordedAlert, job_verdicts, recorded_alerts
from buckets.verdicts.verdict import Verdict, findings

Open = Annotated[bool, typer.Option("--open", help="List alerts that have no verdict yet instead.")]
Limit = Annotated[int, typer.Option(min=1, help="How many to show, the newest first.")]
Rule = Annotated[str | None, typer.Option(help="Only those on alerts of this rule.")]
All = Annotated[bool, typer.Option("--all", help="Also verdicts that later ones on the same alert have replaced.")]


def verdicts(
    conf: JobConf,
    open_: Open = False,
    rule: Rule = None,
    limit: Limit = 20,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List what was found about alerts: who, when, what; or the alerts that wait.

    An alert waits (--open) if neither it nor another alert on the same event
    has a verdict. Those on trial and those held back do not wait. With --json,
    all are printed.

    \b
    Examples:
      buckets verdicts conf/demo.yaml
      buckets verdicts conf/demo.yaml --open --rule payer-to-beneficiary-24h
      buckets verdicts conf/demo.yaml --json
    """  # noqa: D301 - click needs the backspace itself
    if open_ and all_:
        message = "--open lists alerts and --all lists verdicts; give one of the two"
        raise BucketsError(message)
    job = load_job(conf)
    if rule is not None:
        check_known_rules([rule], job, results_folder(job))
    if open_:
        _waiting(job, rule, limit).show(_alert_json if as_json else None)
    else:
        _given(job, rule, limit, all_).show(_verdict_json if as_json else None)


def _given(job: Job, rule: str | None, limit: int, all_: bool) -> Listing[Verdict]:
    """Return verdicts, only the latest on each alert or event unless all are asked for."""
    by_age = sorted(job_verdicts(job), key=lambda verdict: verdict.age)
    counting = by_age if all_ else list({verdict.subject: verdict for verdict in by_age}.values())
    chosen = [verdict for verdict in counting if rule is None or verdict.rule_id == rule]
    chosen.sort(key=lambda verdict: verdict.age, reverse=True)
    of = f" on alerts of rule {rule}" if rule is not None else ""
    none = f"no verdicts{of} yet; `buckets verdict` says what was found about an alert"

    def table(title: str, rows: Sequence[Verdict]) -> TextTable:
        columns = ("When (UTC)", "Verdict", "By", "About")
        made, length = TextTable(title, columns, show_lines=True, whole=columns[:2]), _id_length(job)
        for verdict in rows:
            when = _in_two_lines(verdict.made_at_ms)
            made.add_row(when, verdict.verdict, one_line(verdict.by), _about(verdict, length))
        return made

    return Listing(chosen, none, newest_of(chosen, limit, f"verdicts{of}"), table, limit)


def _waiting(job: Job, rule: str | None, limit: int) -> Listing[RecordedAlert]:
    """Return alerts that wait for a verdict."""
    given = findings(job_verdicts(job))
    waiting = [
        alert
        for alert in recorded_alerts(results_folder(job))
        if alert.output == ALERTS
        and (rule is None or alert.rule_id == rule)
        and given.of(alert.alert_id, alert.event_id) is None
    ]
    waiting.sort(key=lambda alert: (alert.event_time_ms, alert.alert_id), reverse=True)
    of = f" of rule {rule}" if rule is not None else ""

    def table(title: str, rows: Sequence[RecordedAlert]) -> TextTable:
        made = TextTable(title, ("Time (UTC)", "Alert"), show_lines=True, whole=("Time (UTC)",))
        length = _id_length(job)
        for alert in rows:
            about = one_line(f"{alert.rule_id}: {key_words(alert.key)}")
            ids = one_line(f"event {alert.event_id}, alert {alert.alert_id[:length]}")
            made.add_row(_in_two_lines(alert.event_time_ms), f"{about}\n{ids}")
        return made

    title = newest_of(waiting, limit, f"alerts{of} without a verdict")
    return Listing(waiting, f"no alerts{of} wait for a verdict", title, table, limit)


def _id_length(job: Job) -> int | None:
    """Return how many characters of the ids of alerts are shown; None for all, where no alerts are kept."""
    try:
        return short_length(results_folder(job))
    except BucketsError:
        return None


def _alert_json(alert: RecordedAlert) -> dict[str, Any]:
    return {
        "alert_id": alert.alert_id,
        "rule_id": alert.rule_id,
        "event_id": alert.event_id,
        "event_time": iso_text(alert.event_time_ms),
        "key": dict(alert.key),
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as its message has it, but for the times."""
    message = json.loads(verdict.message())
    times = {name: iso_text(message[name]) for name in ("made_at", "event_time") if message[name] is not None}
    return {name: value for name, value in message.items() if name != "version"} | times


def _about(verdict: Verdict, id_length: int | None) -> str:
    """Return the alert or event of a verdict, and the note, on lines."""
    rule = f"{verdict.rule_id}: {key_words(verdict.key or {})}" if verdict.rule_id is not None else ""
    event = f"event {verdict.event_id}, " if verdict.event_id is not None else ""
    alert = f"alert {verdict.alert_id[:id_length]}" if verdict.alert_id is not None else "no alert"
    return "\n".join(one_line(line) for line in (rule, event + alert, short_line(verdict.note or "")) if line)


def _in_two_lines(time_ms: int) -> str:
    return time_text(time_ms).replace(" ", "\n")

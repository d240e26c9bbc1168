"""The commands `buckets verdict` and `verdicts`: what people have found about alerts and events."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.archive.history import archived_events
from buckets.changes.list_entries import write_verdicts
from buckets.changes.versions import check_known_rules
from buckets.cli.console import TextTable, echo, echo_json, newest_of, print_table
from buckets.cli.options import AsJson, JobConf, key_of, login_name
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job, results_folder
from buckets.errors import BucketsError, first_line
from buckets.moment import iso_text, time_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import full_alert_id, short_length
from buckets.printable import counted, key_words, one_line, quoted, short_line
from buckets.verdicts.confirmed import RecordedAlert, complete, job_verdicts, recorded_alerts
from buckets.verdicts.verdict import FINDINGS, Verdict, findings, read_verdict_file, written_verdict


def verdict(
    conf: Annotated[Path, typer.Option(help="The job's configuration; its `verdicts` say where verdicts are kept.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ALERT_ID] fraud|legitimate|unclear", help="The alert, and the verdict."),
    ] = None,
    event: Annotated[str | None, typer.Option(help="An event that raised no alert, by its id.")] = None,
    by: Annotated[str | None, typer.Option(help="Who found it; your login name by default.")] = None,
    note: Annotated[str, typer.Option(help="A note.")] = "",
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .csv or .jsonl file of verdicts; all or none.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="With --event: when it happened, as in 2026-01-03T10:00Z.")] = None,
    key: Annotated[str | None, typer.Option(help="With --event: fields of it, FIELD=VALUE,FIELD=VALUE.")] = None,
    amount: Annotated[str | None, typer.Option(help="With --event: its amount.")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Also accept alerts and events that are not recorded.")
    ] = False,
) -> None:
    """Say what was found about an alert: fraud, legitimate or unclear.

    ALERT_ID may be a unique beginning of an id. The latest verdict on an alert
    counts; all are kept. They do not change scoring; `buckets rules quality`
    counts them. --event gives a verdict on an event that raised no alert,
    which recall needs.

    A file has the fields alert_id or event_id, verdict, by, note, made_at,
    event_time, key and amount, as columns or as JSON objects. If a line is
    wrong, nothing of the file is written.

    Examples:
      buckets verdict 5f1c0a2b9d3e fraud --by ann --note "called the payer" --conf conf/demo.yaml
      buckets verdict legitimate --event t-17 --by ann --conf conf/demo.yaml
      buckets verdict fraud --event t-18 --at 2026-01-03T10:00Z --key payerId=p1 --amount 120.50 --conf conf/demo.yaml
      buckets verdict --from-file cases.csv --conf conf/demo.yaml
    """
    alert_id, finding = _alert_and_finding(words or [], event, from_file)
    if event is None and (at or key or amount):
        message = "--at, --key and --amount go with --event; an alert says them itself"
        raise typer.BadParameter(message)
    if from_file is not None and note:
        message = "--note is for one verdict; write the notes into the file"
        raise typer.BadParameter(message)
    job, now_ms = load_job(conf), epoch_ms()
    author = login_name() if by is None else by.strip()
    if not author:
        message = "--by: is empty; say who has found it"
        raise BucketsError(message)
    if from_file is not None:
        _take_file(job, from_file, read_verdict_file(from_file, author, now_ms), unchecked)
        return
    if alert_id is not None and not unchecked:
        alert_id = full_alert_id(results_folder(job), alert_id)
    fields = None if key is None else key_of(key, job.event_schema.attributes)
    about = {"alert_id": alert_id, "event_id": event, "event_time": at, "key": fields, "amount": amount}
    try:
        asked = written_verdict({**about, "verdict": finding, "note": note}, author, now_ms)
    except ValueError as error:
        raise BucketsError(first_line(error)) from None
    (completed,), faults = complete([asked], results_folder(job), archived_events(job), not unchecked)
    if faults:
        raise BucketsError(faults[0])
    write_verdicts(job, [completed])
    echo(one_line(f"{_about(completed)}: {completed.verdict}, by {completed.by}"))


def _alert_and_finding(words: list[str], event: str | None, from_file: Path | None) -> tuple[str | None, str | None]:
    wanted = 0 if from_file is not None else 1 if event is not None else 2
    if from_file is not None and (words or event is not None):
        message = "--from-file says all; give no alert, event or verdict beside it"
        raise typer.BadParameter(message)
    if len(words) != wanted:
        forms = "ALERT_ID VERDICT, VERDICT --event EVENT_ID, or --from-file FILE"
        message = f"{len(words)} words are given; write {forms}, where VERDICT is one of {', '.join(FINDINGS)}"
        raise typer.BadParameter(message)
    if not words:
        return None, None
    if words[-1] not in FINDINGS:
        message = f"{quoted(words[-1])} is not a verdict; write one of {', '.join(FINDINGS)}"
        raise typer.BadParameter(message)
    if not words[0] or event == "":
        message = "the id of the alert or event is empty; see the column alert_id of the tables of alerts"
        raise typer.BadParameter(message)
    return (words[0] if event is None else None), words[-1]


def _take_file(job: Job, file: Path, lines: dict[int, Verdict | str], unchecked: bool) -> None:
    """Write the verdicts of a file, if all its lines are good; each bad one is named on standard error."""
    faults = {number: line for number, line in lines.items() if isinstance(line, str)}
    good = {number: line for number, line in lines.items() if isinstance(line, Verdict)}
    numbers, asked = list(good), list(good.values())
    verdicts, unknown = complete(asked, results_folder(job), archived_events(job), not unchecked)
    faults |= {numbers[index]: fault for index, fault in unknown.items()}
    for number, fault in sorted(faults.items()):
        echo(one_line(f"{file}:{number}: {fault}"), err=True)
    if faults:
        message = (
            f"verdicts {file}: {len(faults):,} of {len(lines):,} lines are wrong; nothing has been written, correct "
            "them and give the whole file again"
        )
        raise BucketsError(message)
    written, where = write_verdicts(job, verdicts)
    known = len(verdicts) - written
    left_out = f"; {known:,} were there already, or twice in the file" if known else ""
    echo(f"{counted(written, 'verdict')} of {file} in {where}{left_out}")


def _about(verdict: Verdict) -> str:
    if verdict.alert_id is None:
        return f"event {verdict.event_id}"
    of_rule = f" of {verdict.rule_id}" if verdict.rule_id else ""
    return f"alert {verdict.alert_id}{of_rule}" + (f", event {verdict.event_id}" if verdict.event_id else "")


def verdicts(
    conf: JobConf,
    open_: Annotated[bool, typer.Option("--open", help="List alerts without a verdict instead.")] = False,
    rule: Annotated[str | None, typer.Option(help="Only verdicts on alerts of this rule.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the newest first.")] = 20,
    all_: Annotated[bool, typer.Option("--all", help="Also show verdicts that later ones replaced.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what was found about alerts: who, when, what; or the alerts that wait.

    An alert waits (--open) if neither it nor another alert on the same event
    has a verdict. Those on trial and those held back do not wait. With --json,
    all are printed.

    Examples:
      buckets verdicts conf/demo.yaml
      buckets verdicts conf/demo.yaml --open --rule payer-to-beneficiary-24h
      buckets verdicts conf/demo.yaml --json
    """
    if open_ and all_:
        message = "--open lists alerts and --all lists verdicts; give one of the two"
        raise BucketsError(message)
    job = load_job(conf)
    if rule is not None:
        check_known_rules([rule], job, results_folder(job))
    if open_:
        _list_waiting(job, rule, limit, as_json)
    else:
        _list_given(job, rule, limit, all_, as_json)


def _list_given(job: Job, rule: str | None, limit: int, all_: bool, as_json: bool) -> None:
    by_age = sorted(job_verdicts(job), key=lambda verdict: verdict.age)
    counting = by_age if all_ else list({verdict.subject: verdict for verdict in by_age}.values())
    chosen = [verdict for verdict in counting if rule is None or verdict.rule_id == rule]
    chosen.sort(key=lambda verdict: verdict.age, reverse=True)
    if as_json:
        echo_json(list(map(_verdict_json, chosen)))
        return
    of, length = f" on alerts of rule {rule}" if rule is not None else "", _id_length(job)
    columns = ("=When (UTC)", "=Verdict", "By", "About")
    rows = (
        (_in_two_lines(verdict.made_at_ms), verdict.verdict, one_line(verdict.by), _verdict_list_about(verdict, length))
        for verdict in chosen[:limit]
    )
    table = TextTable(newest_of(chosen, limit, f"verdicts{of}"), columns, rows, show_lines=True)
    print_table(table, f"no verdicts{of} yet; `buckets verdict` says what was found about an alert")


def _list_waiting(job: Job, rule: str | None, limit: int, as_json: bool) -> None:
    given = findings(job_verdicts(job))
    waiting = [
        alert
        for alert in recorded_alerts(results_folder(job))
        if alert.output == ALERTS
        and (rule is None or alert.rule_id == rule)
        and given.of(alert.alert_id, alert.event_id) is None
    ]
    waiting.sort(key=lambda alert: (alert.event_time_ms, alert.alert_id), reverse=True)
    if as_json:
        echo_json(list(map(_alert_json, waiting)))
        return
    of, length = f" of rule {rule}" if rule is not None else "", _id_length(job)
    title = newest_of(waiting, limit, f"alerts{of} without a verdict")
    table = TextTable(title, ("=Time (UTC)", "Alert"), show_lines=True)
    for alert in waiting[:limit]:
        about = one_line(f"{alert.rule_id}: {key_words(alert.key)}")
        ids = one_line(f"event {alert.event_id}, alert {alert.alert_id[:length]}")
        table.add_row(_in_two_lines(alert.event_time_ms), f"{about}\n{ids}")
    print_table(table, f"no alerts{of} wait for a verdict")


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
    message = json.loads(verdict.message())
    times = {name: iso_text(message[name]) for name in ("made_at", "event_time") if message[name] is not None}
    return {name: value for name, value in message.items() if name != "version"} | times


def _verdict_list_about(verdict: Verdict, id_length: int | None) -> str:
    rule = f"{verdict.rule_id}: {key_words(verdict.key or {})}" if verdict.rule_id is not None else ""
    event = f"event {verdict.event_id}, " if verdict.event_id is not None else ""
    alert = f"alert {verdict.alert_id[:id_length]}" if verdict.alert_id is not None else "no alert"
    return "\n".join(one_line(line) for line in (rule, event + alert, short_line(verdict.note or "")) if line)


def _in_two_lines(time_ms: int) -> str:
    return time_text(time_ms).replace(" ", "\n")

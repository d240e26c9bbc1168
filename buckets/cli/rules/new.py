"""The commands `buckets rules new` and `import`: a draft with tests from real events, and rules of the Flink demo."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from pydantic import ValidationError

from buckets.cli.console import echo
from buckets.cli.options import SchemaFile, SchemaOption, event_schema
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.cli.rules.change import rules_of
from buckets.config.job import Job, load_job
from buckets.duration import DAY_MS, HOUR_MS, MINUTE_MS, format_duration
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.schema import EventSchema, load_event_schema
from buckets.printable import counted, one_line
from buckets.rule_files.flink_rules import holds_flink_rules, read_flink_rules
from buckets.rule_files.rule_tests import MOST_EVENTS
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_tests.draft import PastAlert, RuleForm, draft, events_of_alert, past_alert
from buckets.rule_tests.given_events import EventRow, file_rows
from buckets.rules.feature import Aggregation, Window
from buckets.rules.rule import Rule
from buckets.validation import first_fault
from buckets.yaml_file import read_text

_USUAL_WINDOWS_MS = [
    *(minutes * MINUTE_MS for minutes in (1, 5, 10, 30)),
    *(hours * HOUR_MS for hours in (1, 6, 12, 24)),
    *(days * DAY_MS for days in (2, 7, 14, 30, 90, 180, 365)),
]


def new(
    rule_id: Annotated[str, typer.Argument(metavar="RULE_ID", help="The name of the new rule.")],
    from_alert: Annotated[str | None, typer.Option(help="An alert of the job of --conf, by its id.")] = None,
    from_file: Annotated[Path | None, typer.Option(help="A .jsonl(.gz), .csv(.gz) or .parquet file of events.")] = None,
    conf: Annotated[Path | None, typer.Option(help="The job's configuration.")] = None,
    schema: SchemaOption = None,
    events: Annotated[Path | None, typer.Option(help="A file that has the events of the alert.")] = None,
    group_by: Annotated[str | None, typer.Option(help="Fields, as in payerId,beneficiaryId.")] = None,
    aggregate: Annotated[str | None, typer.Option(help="As in sum:paymentAmount, avg:paymentAmount or count.")] = None,
    window: Annotated[str | None, typer.Option(help="Its length, as in 24h.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new rule file; by default the draft is printed.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
) -> None:
    """Draft a rule with two tests from the events of an alert, or of a file.

    The limit is one that the events just cross: one test says so, the other
    that one step less does not. What you leave out is taken from the alert's
    rule, or else from what the events have in common. The rule is a DRAFT:
    read it, choose a better limit, and run `buckets rules test`.

    \b
    Examples:
      buckets rules new payer-burst --from-file burst.jsonl --aggregate sum:paymentAmount --window 1h
      buckets rules new payer-burst --from-file burst.jsonl --group-by payerId,beneficiaryId --out payer-burst.yaml
      buckets rules new like-that-one --from-alert 5f1c0a --conf conf/demo.yaml
    """  # noqa: D301 - click needs the backspace itself
    if (from_alert is None) == (from_file is None):
        message = "give either --from-alert or --from-file"
        raise typer.BadParameter(message)
    if from_alert is None and events is not None:
        message = "--events goes with --from-alert; name the file with --from-file"
        raise typer.BadParameter(message)
    if from_alert is not None and (conf is None or schema is not None):
        message = "--from-alert needs --conf, the job that raised the alert, and takes its event schema"
        raise typer.BadParameter(message)
    if out is not None and out.exists() and not overwrite:
        message = f"--out {out}: exists already; name a new file, or replace it with --overwrite"
        raise BucketsError(message)
    rule: Rule | None = None
    if from_file is not None:
        with event_schema(schema, conf) as (of_events, engine):
            rows = file_rows(from_file, of_events, MOST_EVENTS)
        if not rows:
            message = f"events {from_file}: is empty"
            raise BucketsError(message)
        origin, fields, length_ms = from_file.name, _common_field(rows, of_events), _span_ms(rows, of_events)
    else:
        assert from_alert is not None
        assert conf is not None
        job = load_job(conf)
        alert = past_alert(job, from_alert)
        rows = events_of_alert(alert, job, events)
        of_events, engine, rule = job.event_schema, job.settings.engine, _rule_of(alert, job)
        origin, fields, length_ms = f"alert {alert.alert_id}", tuple(alert.key), alert.window_end - alert.window_start
    form = RuleForm(
        rule_id,
        f"Drafted from {one_line(origin)}",
        fields if group_by is None else tuple(field.strip() for field in group_by.split(",") if field.strip()),
        _aggregate(aggregate, rule, of_events),
        _window(window, rule, length_ms),
        rule.where if rule is not None and rule.is_short else (),
    )
    text = draft(form, rows, of_events, engine)
    write_or_print(out, text, f"rule {rule_id} and its tests are in {out}; try them: buckets rules test {out}")


def _rule_of(alert: PastAlert, job: Job) -> Rule | None:
    """Return the rule that raised an alert, if it still is there."""
    rules = job.rules or rules_of(job).rules
    return next((rule for rule in rules if rule.rule_id == alert.rule_id), None)


def _common_field(rows: list[EventRow], schema: EventSchema) -> tuple[str, ...]:
    """Return the first attribute that is the same in all events; none where there is none."""
    shared = (name for name in schema.attributes if len({row.get(name) for row in rows} | {None}) == 2)
    first = next((name for name in shared if all(name in row for row in rows)), None)
    return () if first is None else (first,)


def _span_ms(rows: list[EventRow], schema: EventSchema) -> int:
    """Return a usual length of a window that holds all events."""
    times, _ = conversion.times_ms(pa.array([row[schema.event_time.field] for row in rows]), schema.event_time)
    span = int(times.max() - times.min())
    return next((window for window in _USUAL_WINDOWS_MS if window >= span), span)


def _aggregate(text: str | None, rule: Rule | None, schema: EventSchema) -> Aggregation:
    """Return the aggregate that is asked for, that of the alert's rule, or the sum of the first measure."""
    if text is None:
        if rule is not None and rule.aggregate is not None:
            return rule.aggregate
        measure = next(iter(schema.measures), None)
        return Aggregation(function="count") if measure is None else Aggregation(function="sum", measure=measure)
    function, _, measure = text.partition(":")
    try:
        return Aggregation.model_validate({"function": function} | ({"measure": measure} if measure else {}))
    except ValueError:
        message = f"--aggregate {text}: is not an aggregate; write it as in sum:paymentAmount, or count"
        raise BucketsError(message) from None


def _window(text: str | None, rule: Rule | None, length_ms: int) -> Window:
    if text is None:
        if rule is not None and rule.window is not None:
            return rule.window
        text = format_duration(length_ms)
    try:
        return Window.model_validate({"length": text})
    except ValidationError as error:
        message = f"--window: {first_fault(error)[1]}"
        raise BucketsError(message) from None


def import_rules(
    file: Annotated[Path, typer.Argument(help="Messages of the Flink demo: a JSON list, JSON lines, or plain lines.")],
    out: Annotated[Path | None, typer.Option(help="A new file; by default the rules are printed.")] = None,
    schema: SchemaFile = None,
) -> None:
    """Make a rule file of the rules of Flink's fraud detection demo.

    Messages count in their order, as in a topic: a later one replaces an
    earlier one of the same rule, DELETE takes it away, DELETE_RULES_ALL all
    before it. Other commands change no rule, and are named on standard error.

    \b
    Examples:
      buckets rules import conf/flink-demo-rules.json
      buckets rules import exported.jsonl --schema my-schema.yaml --out my-rules.yaml
    """  # noqa: D301 - click needs the backspace itself
    check_new_file(out)
    text = read_text(file, "rule file")
    if not holds_flink_rules(file, text):
        message = f"rule file {file}: holds no messages of the Flink demo; a YAML rule file needs no import"
        raise BucketsError(message)
    imported = read_flink_rules(file, text, load_event_schema(schema) if schema else None)
    rules = list(imported.rules.values())
    if not rules:
        message = f"rule file {file}: its messages leave no rule; nothing has been written"
        raise BucketsError(message)
    for line, command in imported.commands:
        echo(f"{file}:{line}: {command} changes no rule, and is left out", err=True)
    write_or_print(out, rules_text(rules), f"{out}: {counted(len(rules), 'rule')} of {file}")

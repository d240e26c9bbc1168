"""The command `buckets features`: what rules have computed at each event, as a table to train models on."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from buckets.archive.delta_source import open_events
from buckets.archive.history import History
from buckets.cli.console import Terminal, TextTable, echo, echo_report
from buckets.cli.options import (
    HistoryMaster,
    ListOption,
    SchemaOption,
    event_schema,
    given_lists,
    given_rules,
    scoring_of,
)
from buckets.cli.progress import progress_bar
from buckets.config.engine import EngineSettings, precision_faults, raw_window_faults
from buckets.config.job import Job, load_engine_settings, load_job
from buckets.config.lists import list_faults
from buckets.errors import BucketsError, refuse
from buckets.evaluation import check_rules, first_version
from buckets.events.schema import EventSchema
from buckets.history.feature_folder import Unit
from buckets.history.features import FeatureRun, check_output, read_ids, write_features
from buckets.rules.revision import names
from buckets.rules.rule_set import RuleSet
from buckets.stores.location import in_file_system


def features(
    rules: Annotated[Path, typer.Argument(help="A rule file, or a folder of them.")],
    out: Annotated[
        Path,
        typer.Option(help="Where to write: a file that ends in .parquet, or a Delta table.", callback=in_file_system),
    ],
    events: Annotated[
        Path | None,
        typer.Option(help="A Delta table, a .parquet, .csv(.gz) or .jsonl(.gz) file, or a folder of such files."),
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(help="A job with `archive`: all its events, or those that EVENTS names."),
    ] = None,
    schema: SchemaOption = None,
    arrival: Annotated[
        str | None, typer.Option(help="The column that orders a Delta table of EVENTS; by default its event time.")
    ] = None,
    engine: Annotated[
        Path | None, typer.Option(help="A configuration whose `engine` part is used; not with CONF.")
    ] = None,
    lists: ListOption = None,
    flags: Annotated[
        bool, typer.Option("--flags", help="Add columns that say whether each feature is exact and warm.")
    ] = False,
    by: Annotated[
        Unit | None, typer.Option(help="Write a table by this unit of event time; it goes on where a run was stopped.")
    ] = None,
    master: HistoryMaster = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run has written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report what was written as JSON.")] = False,
) -> None:
    """Write what rules compute at each event, as it was when the event arrived.

    Writes a row for each row of EVENTS, in their order: event_id, event_time,
    position, the grouping fields, outcome, and for each rule RULE.FEATURE and
    RULE.fired, or RULE.value of a rule with one aggregate. They are NULL where
    a rule was not evaluated; outcome says why. With CONF the history is the
    job's archive, and EVENTS lists the ids of events that get a row, such as
    those with a label. With --by a table is written round by round: the same
    command goes on after the last one, also with what has arrived since.

    Examples:
      buckets features conf/demo-rules.yaml --events day.parquet --out features.parquet
      buckets features my-rules.yaml --events table --schema my-schema.yaml --out features
      buckets features my-rules.yaml --conf conf/demo.yaml --out features.parquet --flags
      buckets features my-rules.yaml --conf conf/demo.yaml --events labels.csv --out features.parquet
      buckets features my-rules.yaml --conf conf/demo.yaml --out by-day --by day --master local[4]
    """
    console, size = Terminal(stderr=True), None
    if conf is not None:
        options = {"--list": lists, "--arrival": arrival, "--engine": engine, "--schema": schema}
        option = next((option for option, value in options.items() if value), None)
        if option is not None:
            other = f"goes with events of a file or table; the job {conf} has its own"
            message = f"{option}: {other}. Leave one of them out"
            raise BucketsError(message)
        job = load_job(conf)
        run, history = _of_archive(job, conf, rules, events, flags, console)
        size = history.archive.end()

        def made() -> Iterator[pa.Table]:
            score = partial(scoring_of, job, master, history.archive.end(), console.say)
            if folder is None:
                yield from run.tables_of(history, score())
                return
            with folder.begun(run.question(history), overwrite) as first:
                echo(f"{first:,} events are written" if first else f"{out} is begun", err=True)
                yield from run.write(history, score(), folder, first)
    elif events is not None:
        if master is not None or by is not None:
            option = "--by" if master is None else "--master"
            message = f"{option} goes with --conf, the archive of a job; for other events see buckets.spark.features"
            raise BucketsError(message)
        settings = EngineSettings() if engine is None else load_engine_settings(engine)
        known = given_lists(lists)
        with event_schema(schema) as (of_events, _):
            rule_set = _rule_set(rules, of_events, settings, f"configuration {engine}")
        refuse(list_faults("--list", rule_set.rules, known))
        run = FeatureRun(rule_set, of_events, settings, None, flags)
        opened = open_events(events, of_events, arrival, lambda line: echo(line, err=True), rule_set.named_fields)
        made = partial(run.tables, opened, known)
    else:
        message = "there are no events; name a file or table with --events, or a job that has an archive with --conf"
        raise BucketsError(message)
    folder = check_output(out, events, run.columns, overwrite, by)
    wanted = None if run.missing is None else len(run.missing)
    with progress_bar(console) as bar:
        task = bar.add_task("Events", total=size)

        def tables() -> Iterator[pa.Table]:
            for table in made():
                bar.update(task, completed=run.arrived)
                if folder is not None and not console.is_terminal:
                    console.say(f"{run.arrived:,} of {size:,} events")
                yield table
            if run.missing is not None and len(run.missing) == wanted:
                message = f"none of the {wanted:,} events of --events {events} is in the archive; check its ids"
                raise BucketsError(message)
            if conf is None:
                run.bad.check(f"--events {events}")

        if folder is None:
            write_features(out, run.columns, tables())
        else:
            for _ in tables():
                pass
    if run.missing:
        echo(f"{len(run.missing):,} of {wanted:,} events of --events are not in the archive", err=True)
    for line in run.bad.lines:
        echo(line, err=True)
    rows = run.outcomes.total()
    if as_json:
        written = {"out": str(out), "arrived": run.arrived, "rows": rows, "outcomes": dict(run.outcomes)}
        echo_report(written | {"columns": run.columns.names})
        return
    echo(f"{rows:,} rows of {len(run.columns)} columns in {out}")
    outcomes = ((outcome, f"{count:,}") for outcome, count in run.outcomes.most_common())
    Terminal().print(TextTable(None, ("Outcome", ">Rows"), outcomes))


def _of_archive(
    job: Job, conf: Path, rules: Path, events: Path | None, flags: bool, console: Terminal
) -> tuple[FeatureRun, History]:
    with console.status("Reading what has arrived…"):
        history = History.open(job)
    # Fields have the names of now, also before the job has taken these.
    terms = history.recorded.under(job.event_schema.new_names).terms(history.recorded.cuts[-1].batch_id)
    names = {**terms.event_schema.aliases, **job.event_schema.aliases}
    aliases = {name: names[name] for name in names if name in terms.event_schema.field_names}
    schema = terms.event_schema.model_copy(update={"aliases": aliases})
    rule_set = _rule_set(rules, schema, terms.engine, f"configuration {conf}")
    refuse(list_faults(f"configuration {conf}", rule_set.rules, job.settings.lists))
    ids = None if events is None else read_ids(events, schema.event_id)
    return FeatureRun(rule_set, schema, terms.engine, ids, flags), history


def _rule_set(path: Path, schema: EventSchema, engine: EngineSettings, origin: str) -> RuleSet:
    """Return the rules of a file or folder, which fit the settings, without those over alerts."""
    everything = given_rules(path, schema)
    check_rules(everything, schema)
    rules = tuple(rule for rule in everything if rule.on == "events" and not rule.asks_alerts) or everything
    if len(rules) < len(everything):
        left_out = names(rule.rule_id for rule in everything if rule not in rules)
        echo(f"features are of events, so rules over alerts are left out: {left_out}", err=True)
    refuse(precision_faults(origin, rules, engine, schema))
    refuse(raw_window_faults(origin, rules, engine, schema))
    return first_version(rules, schema, engine)

"""The command `buckets evaluate`: tries rules on a file, with the engine of a job in this process."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal, TextTable, echo
from buckets.cli.options import ListOption, SchemaOption, event_schema, given_lists, given_rules
from buckets.cli.progress import BatchProgress
from buckets.config.engine import MOST_SHARDS, raw_window_fault
from buckets.config.job import load_engine_settings
from buckets.config.lists import list_faults
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.errors import BucketsError, refuse
from buckets.evaluation import first_version
from buckets.events.bad_rows import BadRows
from buckets.events.event_file import EventFile, file_arrivals, lacking, open_event_file
from buckets.outputs.messages import JsonFiles, JsonLines
from buckets.stores.location import in_file_system


def evaluate(
    events: Annotated[Path, typer.Option(help="A .jsonl(.gz), .csv(.gz) or .parquet file, in arrival order.")],
    rules: Annotated[Path, typer.Option(help="A rule file, or a folder of them.")],
    out: Annotated[
        Path,
        typer.Option(help="A folder for the results; earlier results in it are replaced.", callback=in_file_system),
    ],
    schema: SchemaOption = None,
    conf: Annotated[Path | None, typer.Option(help="A configuration whose `engine` part is used.")] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows per micro-batch.")] = 200_000,
    shards: Annotated[
        int | None, typer.Option(min=1, max=MOST_SHARDS, help="Shards, instead of those of the configuration.")
    ] = None,
    lists: ListOption = None,
) -> None:
    """Evaluate rules on a file, and write what came out as JSON lines.

    The engine of a job runs over the file, without Spark. To count how often
    rules fire, `buckets backtest` is faster; it writes no evaluations.

    OUT gets evaluations.jsonl (a line for every event and rule), alerts.jsonl
    (the fired ones), and shadow_alerts, late_events, collisions, duplicates
    and dead_letters.

    Examples:
      buckets evaluate --events day.jsonl --rules conf/demo-rules.yaml --out results
      buckets evaluate --events day.csv --rules my-rules.yaml --schema my-schema.yaml --out results
      buckets evaluate --events day.jsonl --rules conf/rules --schema schemas/card-payment.yaml --out results
      buckets evaluate --events day.jsonl --rules my-rules.yaml --list payroll=payroll.csv --out results
      buckets evaluate --events day.parquet --rules my-rules.yaml --conf conf/demo.yaml --batch-rows 1000 --out results
    """
    known_lists = given_lists(lists)
    with event_schema(schema) as (of_events, engine):
        rule_list = given_rules(rules, of_events)
        refuse(list_faults("--list", rule_list, known_lists))
        engine = load_engine_settings(conf) if conf else engine
        file = open_event_file(events, of_events)
    if shards is not None:
        engine = engine.model_copy(update={"shards": shards})
    if out.exists() and not out.is_dir():
        message = f"output {out}: is a file; name a folder"
        raise BucketsError(message)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"output {out}: cannot be made: {error.strerror or error}; name another folder"
        raise BucketsError(message) from None
    rule_set = first_version(rule_list, of_events, engine, lambda rule: raw_window_fault(rule, engine, of_events))
    job = InMemoryJob(Scorer(of_events, engine, evaluations=True, lists=known_lists))
    decoder = OutputDecoder(rule_set, of_events, engine)
    progress = BatchProgress(Terminal(stderr=True), "Reading events…")
    with progress, JsonFiles(out, JsonLines(rule_set, of_events)) as written:
        arrivals = file_arrivals(file, of_events, batch_rows, lambda line: echo(line, err=True))
        parts = ((rows, start) for rows in arrivals for start in range(0, len(rows), batch_rows))
        for rows, start in parts:
            started_s = time.perf_counter()
            results = job.score_batch([rows.slice(start, batch_rows)], rule_set)
            for output, payloads in results.payloads.items():
                written.write(output, decoder.table(output, payloads))
            progress.on_batch(results.account, time.perf_counter() - started_s)
    rows = ((f"{name}.jsonl", f"{count:,}") for name, count in written.lines.items())
    Terminal().print(TextTable(f"Results in {out}", ("File", ">Lines"), rows))
    _tell_bad(file, out, progress)
    gone = lacking([file], of_events, rule_set.named_fields)
    if gone:
        echo(f"events {file.path}: {gone}", err=True)


def _tell_bad(file: EventFile, out: Path, progress: BatchProgress) -> None:
    """Say which rows are not events; all outputs are written by then."""
    bad = BadRows()
    with (out / "dead_letters.jsonl").open(encoding="utf-8") as lines:
        letters = ((file.path.name, letter["position"], letter["reason"]) for letter in map(json.loads, lines))
        bad.take(progress.events, progress.malformed, letters)
    bad.rounded.update(progress.rounded)
    bad.check(f"events {file.path}")
    for line in bad.lines:
        echo(f"events {file.path}: {line}", err=True)

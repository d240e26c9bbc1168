"""The command `buckets demo`, and the folder that it makes."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box

from buckets.cli.console import Terminal, TextTable
from buckets.cli.progress import BatchProgress
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import GeneratorSettings, write
from buckets.generator import generate as generate_stream
from buckets.generator.transactions import recall
from buckets.moment import moment_ms, time_text
from buckets.numbers.fixed_point import readable
from buckets.outputs.recorded_outputs import read_rows
from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES, resource
from buckets.stores.location import in_file_system

if TYPE_CHECKING:
    from buckets.monitor.pace import BatchReport


def check_demo_folder(out: Path, mark: str) -> None:
    """See that a folder is empty, or holds an earlier demo by its mark."""
    if in_file_system(out).exists() and not (out / mark).exists() and (not out.is_dir() or any(out.iterdir())):
        message = f"output {out} holds something that is not an earlier demo; name another folder with --out"
        raise BucketsError(message)


def write_demo_conf(out: Path, example: str, changes: Mapping[str, str]) -> Path:
    """Write an example of `conf/` into the folder of a demo, with other texts in place of some, and return the file."""
    text = resource(f"conf/{example}").read_text(encoding="utf-8")
    for old, new in {"../schemas/transaction.yaml": json.dumps(str(DEFAULT_SCHEMA)), **changes}.items():
        text = text.replace(old, new)
    write_whole(out / "conf.yaml", text)
    return out / "conf.yaml"


DEMO_MARK = ".buckets-demo"
SHOWN_PER_BATCH = 4
SHORT_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Java's second compiler would take a sixth of the CPU until the first alert, and the demo ends before that pays."""
ROWS_PER_FILE = 40_000  # Lines of one micro-batch: large enough that Spark's fixed cost of a batch does not count


def demo(
    out: Annotated[Path, typer.Option(help="A folder for everything the demo makes; an earlier demo is replaced.")] = (
        Path("demo-out")
    ),
    transactions: Annotated[int, typer.Option(min=1000, help="How many transactions, over 30 days.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of the generator.")] = 7,
) -> None:
    """Generate 30 days of payments with planted fraud, score them, and show what was caught.

    Examples:
      buckets demo
      buckets demo --transactions 50000 --out /tmp/demo
    """
    console = Terminal()
    check_demo_folder(out, DEMO_MARK)
    if out.exists():
        shutil.rmtree(out)
    write_whole(out / DEMO_MARK, "")
    (out / "transactions").mkdir()
    conf = write_demo_conf(out, "demo.yaml", {"../demo-out/": "", "demo-rules.yaml": json.dumps(str(DEMO_RULES))})
    settings = GeneratorSettings(
        seed=seed, transactions=transactions, malformed_rate=0.0002, rows_per_file=ROWS_PER_FILE
    )
    job = load_job(conf)
    job = job.model_copy(update={"settings": job.settings.model_copy(update={"spark": SHORT_RUN})})
    from buckets.spark.prepared_job import Listener, job_session, prepare

    started_s = time.perf_counter()
    prepared = prepare(job)
    with BatchProgress(Terminal(stderr=True)) as progress, ThreadPoolExecutor(1) as beside:

        def on_batch(report: "BatchReport") -> None:
            progress.on_batch(report.account, report.duration_s)
            _print_alerts(console, report)

        # The stream is written while Java starts.
        writing = beside.submit(lambda: write(generate_stream(settings), out / "transactions", None, overwrite=True))
        session = job_session(job, job.checkpoint)
        lines = writing.result().line_count
        console.print(f"{lines:,} lines of payments over {settings.days} days are in {out / 'transactions'}")
        query = prepared.query(session, Listener(on_batch, on_phase=progress.on_phase))
        try:
            query.run(None, progress.on_interrupt)
        except KeyboardInterrupt:
            console.print("stopped; `buckets run` with the demo's conf.yaml goes on where it was")
            return
    truth = (out / "transactions.truth.jsonl").read_text(encoding="utf-8").splitlines()
    alerts = read_rows(out / "tables", "alerts", ["rule_id", "event_id"])
    console.print(recall_table(list(map(json.loads, truth)), alerts))
    console.print(
        "At once: at the very event with which the limit was crossed. Others: alerts on payments nobody planted."
    )
    wall_s = time.perf_counter() - started_s
    console.print(
        f"{progress.events:,} events in {wall_s:.0f} s, starting Spark included; "
        f"{progress.events / progress.busy_s:,.0f} events/s while batches ran, Delta commits included"
    )
    console.print(f"tables: {out / 'tables'} (alerts, late_events, collisions, duplicates, dead_letters, batches, …)")
    console.print(f"read on: buckets alerts {out / 'tables'}")
    console.print(f"or in a browser: buckets console {conf}", soft_wrap=True)


def _print_alerts(console: Terminal, report: "BatchReport") -> None:
    rows = sorted((row for table in report.alerts for row in table.to_pylist()), key=lambda row: row["event_time"])
    if not rows:
        return
    title = f"batch {report.account.batch_id}: {len(rows)} alerts"
    table = TextTable(title, ("Time (UTC)", "Rule", "Key", ">Value"))
    for row in rows[:SHOWN_PER_BATCH]:
        key = ", ".join(str(value) for value in json.loads(row["key"]).values())
        table.add_row(time_text(moment_ms(row["event_time"])), row["rule_id"], key, readable(row["value"]))
    if len(rows) > SHOWN_PER_BATCH:
        table.add_row("…", f"and {len(rows) - SHOWN_PER_BATCH} more", "", "")
    console.print(table)


def recall_table(truth: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]]) -> TextTable:
    """Return how many cases of each pattern were planted and caught."""
    columns = ("=Pattern", "=Rule", ">Planted", ">Caught", ">At once", ">Others")
    rows = (
        (pattern, rule_id, *(f"{count:,}" for count in counts)) for pattern, rule_id, *counts in recall(truth, alerts)
    )
    table = TextTable("What was caught of the planted fraud", columns, rows)
    table.box, table.padding = box.SIMPLE, (0, 1, 0, 0)
    return table

"""Whether a job that runs for long stays as it was: descriptors, threads, memory, files, logs, and CPU time of a batch.

One broker, and all payments in a topic before the job starts, so that batches follow one another without a pause and
each has the same number of them. The job is `buckets run`, a process of its own, once for each kind of output:

- `kafka`: results go to topics, and `--audit` keeps the topics as Delta tables in the same process;
- `delta`: results go to Delta tables.

Payments come from 500 keys a second of event time a batch, and windows are at most two minutes long; the log of the
state has 4 MiB, and versions of tables are kept for ten minutes, the least there is. So after a tenth of the batches
all of it is about as large as it will ever be, and what is moved, joined and removed is part of what is measured.
Compared are the medians over the batches after the warm-up (10 to 30 % of them) and over the last 20 %: a measure is
flat if the second is at most a tenth larger.

    python bench/soak.py                                       # 20,000 batches of each output: hours
    python bench/soak.py --batches 500 --output delta          # a short one, results in a folder: --out FOLDER
    nohup python bench/soak.py --work soak > soak.log &        # in the background; the folder stays
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from live_job import EVERY, SCHEMA, rule
from measure import ROOT, machine
from rich.console import Console
from rich.table import Table
from soak_samples import Change, Sample, changes, take_sample

from buckets.config.job import load_job
from buckets.kafka.local_broker import LocalBroker, free_port
from buckets.kafka.sender import paced_produce
from buckets.kafka.topics import create_topics
from buckets.monitor.live import read_live

RESULTS = Path(__file__).resolve().parent / "results"
OUTPUTS = ("kafka", "delta")
KEYS = 500
SAMPLES = 200
"""How many samples a run has, about."""
POLL_S = 0.5
SAID_EVERY_S = 30.0
END_WITHIN_S = 120.0


def rules() -> list[dict[str, Any]]:
    """One of each sort of rule: windows, several groups at once, memory of alerts, a list, and over alerts."""
    cooled = {"cooldown": "30s", "score": 10}
    over_two = {
        "rule_id": "of-two-groups",
        "group_by": ["payerId"],
        "features": {
            "own": {"function": "count", "window": "1m"},
            "of_beneficiary": {"function": "count", "window": "2m", "group_by": ["beneficiaryId"]},
        },
        "when": "own >= 2 AND of_beneficiary >= 2",
        "cooldown": "30s",
        "score": 5,
    }
    over_alerts = {
        "rule_id": "score",
        "on": "alerts",
        "group_by": ["payerId"],
        "aggregate": {"function": "sum", "measure": "alert_score"},
        "window": {"length": "2m"},
        "limit": {"operator": ">", "value": "20"},
        "cooldown": "1m",
    }
    return [
        rule(EVERY, "1m", aggregate={"function": "count"}, limit={"operator": ">=", "value": "1"}),
        rule("sum", "2m", limit={"operator": ">", "value": "30"}, where="payerId NOT IN LIST staff", **cooled),
        rule("largest", "2m", aggregate={"function": "max", "measure": "amount"}),
        rule("by-beneficiary", "1m", group_by=["beneficiaryId"]),
        over_two,
        over_alerts,
    ]


def payments(count: int, a_batch: int) -> Iterator[tuple[str, bytes]]:
    """Payments as messages, a second for those of one batch; the last one is of now."""
    first_ms = time.time_ns() // 1_000_000 - count * 1000 // a_batch
    for number in range(count):
        payer = f"p{number * 7919 % KEYS}"
        at_ms = first_ms + number * 1000 // a_batch
        value = {"id": f"e{number}", "at": at_ms, "payerId": payer, "beneficiaryId": f"b{number * 31 % KEYS}"}
        yield payer, json.dumps(value | {"amount": "12.34"}).encode()


def write_job(folder: Path, port: int, output: str, a_batch: int) -> Path:
    """Write the folder of a job; returns its configuration."""
    folder.mkdir(parents=True)
    (folder / "staff.csv").write_text("key\np1\np2\n", encoding="utf-8")
    kept = {"path": "tables", "keep_versions": "10m"}
    results: dict[str, Any] = {"output": {"kind": "delta"} | kept}
    if output == "kafka":
        results = {"output": {"kind": "kafka"}, "audit": {"checkpoint": "audit-checkpoint"} | kept}
    conf = {
        "kafka": {"bootstrap_servers": f"localhost:{port}"},
        "source": {"kind": "kafka", "topic": "transactions", "max_offsets_per_trigger": a_batch},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "lists": {"staff": {"kind": "file", "path": "staff.csv"}},
        "checkpoint": "checkpoint",
        "trigger": {"interval": "0ms"},
        "partitions": 1,
        "engine": {"shards": 1, "allowed_lateness": "10s"},
        "state": {"log": "4MiB"},
        # A JVM of little memory has soon had all that it may have: what grows after that is a leak.
        "spark": {"spark.driver.memory": "1g"},
    } | results
    for name, content in (("schema", SCHEMA), ("rules", {"rules": rules()}), ("conf", conf)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder / "conf.yaml"


@contextlib.contextmanager
def running(conf: Path, audit: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The job, running, with a temporary folder of its own; its standard error goes to `job.log`."""
    temporary = conf.with_name("tmp")
    temporary.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, str(ROOT / "jobs" / "score.py"), str(conf), *(["--audit"] if audit else [])]
    with conf.with_name("job.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_WITHIN_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def batches_done(checkpoint: Path, process: subprocess.Popen[bytes]) -> int:
    """How many batches the job has done, as it says itself."""
    live = read_live(checkpoint)
    return 0 if live is None or live.data["pid"] != process.pid else int(live.data["totals"]["batches"])


def soak(conf: Path, output: str, batches: int, console: Console) -> list[Sample]:
    """Run a job for so many batches, and take samples on its way."""
    samples: list[Sample] = []
    every, said_s = max(batches // SAMPLES, 1), time.monotonic()
    with running(conf, audit=output == "kafka") as process:
        began_s = None
        while not samples or samples[-1].batches < batches:
            if process.poll() is not None:
                said = conf.with_name("job.log").read_text(encoding="utf-8", errors="replace")
                sys.exit(f"the job has ended with {process.returncode} after {len(samples)} samples:\n{said[-2000:]}")
            done = batches_done(conf.with_name("checkpoint"), process)
            if done and (not samples or done >= min(samples[-1].batches + every, batches)):
                samples.append(take_sample(conf.parent, process.pid, done))
                began_s = began_s or time.monotonic()
                if time.monotonic() - said_s > SAID_EVERY_S or done >= batches:
                    said_s = time.monotonic()
                    say_progress(console, output, samples, batches, said_s - began_s)
            time.sleep(POLL_S)
    return samples


def say_progress(console: Console, output: str, samples: list[Sample], batches: int, took_s: float) -> None:
    """One line: how far it is, how long it will take, and what the processes hold."""
    newest, done = samples[-1], samples[-1].batches - samples[0].batches
    left_s = (batches - newest.batches) * took_s / max(done, 1)
    held = ", ".join(f"{name} {value:,.0f}" for name, value in newest.levels.items() if "descriptors" in name)
    console.print(
        f"{datetime.now(UTC):%H:%M:%S} {output}: batch {newest.batches:,} of {batches:,}, "
        f"{done / max(took_s, 1e-9):.1f} a second, {left_s / 60:.0f} min left; {held}",
        highlight=False,
        soft_wrap=True,
    )


def show(console: Console, output: str, found: list[Change]) -> None:
    """Print what has changed and what has not."""
    table = Table(title=f"output {output}: beginning and end", title_justify="left")
    for name in ("Measure", "Beginning", "End", "Ratio", "Flat"):
        table.add_column(name, justify="left" if name == "Measure" else "right")
    for change in found:
        ratio = f"{change.ratio:.2f}" if change.first else ""
        flat = ("yes" if change.flat else "NO") if change.judged else "grows with the data"
        table.add_row(change.measure, f"{change.first:,.1f}", f"{change.last:,.1f}", ratio, flat)
    console.print(table)


def main() -> int:
    """Soak; returns 1 if something is not flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20_000, help="micro-batches of each output")
    parser.add_argument("--messages", type=int, default=50, help="payments of a micro-batch")
    parser.add_argument("--output", choices=OUTPUTS, help="only this one (default: one after the other)")
    parser.add_argument("--work", type=Path, help="a new folder for broker and jobs, which stays")
    parser.add_argument("--out", type=Path, help="folder for soak_OUTPUT.json (default: bench/results from 20,000 on)")
    options = parser.parse_args()
    console, flat = Console(width=120), True
    out = options.out or (RESULTS if options.batches >= 20_000 else None)
    found: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    found |= {"batches": options.batches, "messages": options.messages}
    with contextlib.ExitStack() as stack:
        if options.work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buckets-soak-")))
        else:
            work = options.work.resolve()
        for output in (options.output,) if options.output else OUTPUTS:
            broker = LocalBroker(work / output / "broker", free_port())
            broker.start()
            stack.callback(broker.stop)
            conf = write_job(work / output / "job", broker.port, output, options.messages)
            create_topics(broker.kafka, load_job(conf), partitions=1)
            count = options.batches * options.messages
            console.print(f"{output}: sending {count:,} payments", highlight=False)
            paced_produce(broker.kafka, "transactions", payments(count, options.messages), rate=1_000_000)
            samples = soak(conf, output, options.batches, console)
            broker.stop()
            compared = changes(samples)
            show(console, output, compared)
            flat = flat and all(change.flat for change in compared if change.judged)
            if out is not None:
                parts = {"changes": [asdict(each) for each in compared], "samples": [asdict(each) for each in samples]}
                out.mkdir(parents=True, exist_ok=True)
                (out / f"soak_{output}.json").write_text(json.dumps(found | parts), encoding="utf-8")
                console.print(f"written to {out / f'soak_{output}.json'}", highlight=False)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())

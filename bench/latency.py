"""How long from a payment to its alert? Producer, broker, scoring, broker and consumer on this machine.

The producer keeps its own schedule, whatever the engine does, and each payment counts from the moment at which it was
meant to be sent. Ten rules over windows of 5 minutes to 30 days; half of all keys have a history of 30 days; one rule
fires at every payment. The first minute is warm-up.

    python bench/latency.py [--rates 500,1000] [--seconds 300] [--groups 1] [--without SETTING,...] [--audit yes]
        [--archive yes] [--metrics yes] [--tabs 20]

The rules are in one group, or with `--groups` in more, each a key more that a payment touches.
`--without` takes settings of Spark back to Spark's own defaults, to see what they are worth. With
`--audit yes` the same process keeps the topics as tables; with `--archive yes` the job has an archive; with
`--metrics yes` it answers Prometheus, who asks each second; with `--tabs` a console shows what the job does to so many
who look at once.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from live_job import HISTORY_EVENTS, LiveJob, live_job, ten_rules
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.kafka.local_broker import HOST, free_port
from tests.kafka.topic_reader import TopicReader

WARM_UP_S = 60.0
OPTIONS = {
    "--rates": "500,1000",
    "--seconds": "300",
    "--groups": "1",
    "--without": "",
    "--audit": "no",
    "--archive": "no",
    "--metrics": "no",
    "--tabs": "0",
}
AUDIT = {"audit": {"path": "audit", "checkpoint": "audit-checkpoint"}}
SCRAPE_EVERY_S = 1.0
CONSOLE_STARTS_WITHIN_S = 60.0
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
P50_MS, P99_MS, P999_MS = 150, 250, 350
MANY_GROUPS_P99_MS = 350
DRAIN_S = 5.0


def consume_alerts(live: LiveJob, stopping: threading.Event, take: Callable[[dict[str, Any]], None]) -> None:
    """Hand over each alert as it comes, until told to stop."""
    with TopicReader(live.kafka, [live.job.settings.output.topic("alerts")], from_end=True) as reader:
        while not stopping.is_set():
            for message in reader.poll(0.1):
                take(json.loads(message.value() or b"{}"))


def scrape(live: LiveJob, stopping: threading.Event) -> None:
    """Ask for the metrics of a job as Prometheus does, until told to stop."""
    metrics = live.job.settings.metrics
    while metrics is not None and not stopping.wait(SCRAPE_EVERY_S):
        with urllib.request.urlopen(f"http://{metrics.place}/metrics") as answer:
            answer.read()


@contextmanager
def open_tabs(live: LiveJob, tabs: int) -> Iterator[None]:
    """A console of the job, with the stream of its first page open so many times."""
    if not tabs:
        yield
        return
    port = free_port()
    command = [Path(sys.executable).with_name("buckets"), "console", live.conf, "--port", str(port)]
    with (
        live.conf.with_name("console.log").open("w") as said,
        subprocess.Popen(command, stderr=said, stdout=said) as console,
    ):
        threads = [threading.Thread(target=hold_open, args=(port,), daemon=True) for _ in range(tabs)]
        for thread in threads:
            thread.start()
        yield
        lost = sum(not thread.is_alive() for thread in threads)
        console.terminate()
    if lost:
        sys.exit(f"{lost} of {tabs} pages lost their stream")


def hold_open(port: int) -> None:
    """Read the stream of a console's first page, as a browser does, from when the console answers to its end."""
    ends_s = time.monotonic() + CONSOLE_STARTS_WITHIN_S
    while True:
        try:
            answer = urllib.request.urlopen(f"http://{HOST}:{port}/now/live")
            break
        except OSError:
            if time.monotonic() > ends_s:
                return
            time.sleep(0.2)
    with answer, contextlib.suppress(OSError):
        for _ in answer:
            pass


def measure(
    rate: int, seconds: float, warm_up_s: float, changes: tuple[dict[str, Any], dict[str, Any]], report: Report
) -> dict[str, Any]:
    """Run one rate.

    Args:
        rate: payments a second.
        seconds: for how long it is measured.
        warm_up_s: for how long it runs before.
        changes: settings of Spark and parts of the configuration that differ from the usual ones.
        report: what is printed goes there.

    Returns:
        Delays in ms by the second at which their payment was meant to be sent, and the times of the batches.
    """
    spark, more = changes
    tabs, groups = int(report.option("--tabs")), int(report.option("--groups"))
    with live_job(ten_rules(groups), spark, **more) as live, live.engine() as engine, open_tabs(live, tabs):
        live.send_history()
        engine.wait_for(HISTORY_EVENTS)
        report.console.print(f"  {rate}/s: history is scored", highlight=False)
        found: list[tuple[int, int]] = []
        stopping = threading.Event()

        def take(alert: dict[str, Any]) -> None:
            found.append((alert["event_time"], time.time_ns() // 1_000_000))

        consumer = threading.Thread(target=consume_alerts, args=(live, stopping, take), daemon=True)
        consumer.start()
        threading.Thread(target=scrape, args=(live, stopping), daemon=True).start()
        started_ms = time.time_ns() // 1_000_000
        sent = int(live.producer(rate, warm_up_s + seconds).communicate()[0])
        engine.wait_for(HISTORY_EVENTS + sent)
        time.sleep(DRAIN_S)
        stopping.set()
        consumer.join()
        engine.stop()
    begin_ms = started_ms + warm_up_s * 1000
    late = [(due, came - due) for due, came in found if due >= begin_ms]
    batches = [batch for batch in engine.batches if batch.get("written_ms", 0) >= begin_ms]
    measured = {batch["batch"] for batch in batches}
    phases: dict[str, list[float]] = defaultdict(list)
    for batch in engine.batches:
        if batch["batch"] in measured and "durationMs" in batch:
            for name, took_ms in batch["durationMs"].items():
                phases[name].append(took_ms)
    for batch in batches:
        phases["of addBatch: rules to results"].append(batch["scored_s"] * 1000)
        phases["of addBatch: results to topics"].append(batch["written_s"] * 1000)
    return {"sent": sent, "alerts": len(found), "late": late, "batches": len(batches), "phases": phases}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The quantiles that are shown."""
    return {name: float(np.quantile(values, share, method="inverted_cdf")) for name, share in QUANTILES.items()}


def main() -> None:
    """Measure."""
    report = Report("latency", __doc__, repeats=1, options=OPTIONS)
    rates = [int(rate) for rate in report.option("--rates").split(",")]
    seconds = 15.0 if report.quick else float(report.option("--seconds"))
    warm_up_s = 15.0 if report.quick else min(WARM_UP_S, seconds)
    spark = {name: DEFAULTS[name] for name in report.option("--without").split(",") if name}
    more = dict(AUDIT) if report.option("--audit") == "yes" else {}
    if report.option("--archive") == "yes":
        more["archive"] = {"path": "archive"}
    if report.option("--metrics") == "yes":
        more["metrics"] = {"port": free_port()}
    late_of: dict[int, list[tuple[int, int]]] = {}
    for rate in rates:
        done = measure(rate, seconds, warm_up_s, (spark, more), report)
        late = late_of[rate] = done.pop("late")
        shown = quantiles([took_ms for _, took_ms in late])
        phases = {name: quantiles(took_ms) for name, took_ms in done.pop("phases").items()}
        report.found[str(rate)] = done | {"latency_ms": shown, "phases_ms": phases, "spark": spark, **more}
        report.table(
            f"{rate} events/s: {len(late):,} payments, {done['batches']:,} batches; ms",
            ("From payment to alert", *QUANTILES),
            [("in all", *(f"{value:,.0f}" for value in shown.values()))]
            + [(name, *(f"{value:,.0f}" for value in each.values())) for name, each in phases.items()],
        )
        if done["alerts"] < done["sent"]:
            sys.exit(f"{done['sent'] - done['alerts']:,} of {done['sent']:,} payments have no alert")
    first = str(rates[0])
    goals = {"p50": P50_MS, "p99": P99_MS, "p99.9": P999_MS}
    if report.option("--groups") != "1":
        goals = {"p99": MANY_GROUPS_P99_MS}
    for name, most_ms in goals.items():
        if "500" in report.found:
            report.goal(Goal(f"{name} at 500/s, ms", report.found["500"]["latency_ms"][name], at_most=most_ms))

    def draw(axes: Axes) -> None:
        for rate, late in late_of.items():
            ordered = np.sort([took_ms for _, took_ms in late])
            axes.plot(ordered, 1 - np.arange(len(ordered)) / len(ordered), label=f"{rate} events/s")
        axes.set(xlabel="ms from payment to alert", ylabel="share of payments that took longer", yscale="log")
        axes.set_title(f"Delay of alerts, {report.found[first]['sent']:,} payments and more")
        axes.grid(alpha=0.3)
        axes.legend()

    report.write(draw)


DEFAULTS: dict[str, Any] = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "false",
}
"""Spark's own values of settings that may be taken back."""

if __name__ == "__main__":
    main()

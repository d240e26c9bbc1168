"""What does a small batch wait for? The steps of a batch in all processes, as a picture and a table.

    python bench/timeline.py [--rate 500] [--seconds 120] [--groups 1]

A job runs as `buckets run` does it, with its driver, its Python workers and Spark watched: calls of py4j, steps of the
batch on the driver, stages and tasks (Spark's event log), steps of the workers. Times are medians over the batches of
the second half, from the moment at which the batch before had been written.
"""

import itertools
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from live_job import HISTORY_EVENTS, live_job, ten_rules
from matplotlib.axes import Axes
from report import Report
from watched import BATCH, DRIVER, FOLDER

OPTIONS = {"--rate": "500", "--seconds": "120", "--groups": "1"}
LOGGED = {"SparkListenerTaskEnd": ("Task Info", "Launch Time", "Finish Time")}
LOGGED["SparkListenerStageCompleted"] = ("Stage Info", "Submission Time", "Completion Time")


class Step(NamedTuple):
    """Something that was done once; times in ms since the epoch."""

    where: str
    what: str
    began_ms: float
    ended_ms: float


class Usual(NamedTuple):
    """What batches do of a kind: medians over them."""

    where: str
    what: str
    times: float
    from_ms: float
    took_ms: float


def steps_of(folder: Path) -> Iterator[Step]:
    """Yield what was written down by `watched.py`, and what Spark's event log has."""
    for file in folder.glob("*.steps"):
        for line in file.read_text(encoding="utf-8").splitlines():
            where, what, began_ns, ended_ns = json.loads(line)
            yield Step(where, what, began_ns / 1e6, ended_ns / 1e6)
    for file in (folder / "events").rglob("*"):
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            event: dict[str, Any] = json.loads(line) if line.startswith("{") else {"Event": None}
            if event["Event"] in LOGGED:
                info, began, ended = LOGGED[event["Event"]]
                yield Step("JVM", info.split()[0].lower(), event[info][began], event[info][ended])


def usual_steps(steps: list[Step]) -> tuple[int, float, list[Usual]]:
    """Return how many batches were looked at, how long one takes, and its steps."""
    ends_ms = sorted(step.ended_ms for step in steps if (step.where, step.what) == (DRIVER, BATCH))
    spans = list(itertools.pairwise(ends_ms))[len(ends_ms) // 2 :]
    by_kind: dict[tuple[str, str], list[list[Step]]] = defaultdict(list)
    for begin_ms, end_ms in spans:
        of_batch: dict[tuple[str, str], list[Step]] = defaultdict(list)
        for step in steps:
            if begin_ms <= step.began_ms < end_ms:
                moved = step._replace(began_ms=step.began_ms - begin_ms, ended_ms=step.ended_ms - begin_ms)
                of_batch[step.where, step.what].append(moved)
        for kind, found in of_batch.items():
            by_kind[kind].append(found)
    usual = [
        Usual(
            *kind,
            median(len(found) for found in batches),
            median(min(step.began_ms for step in found) for found in batches),
            median(sum(step.ended_ms - step.began_ms for step in found) for found in batches),
        )
        for kind, batches in by_kind.items()
        if len(batches) > len(spans) / 2
    ]
    return len(spans), median(end - begin for begin, end in spans), sorted(usual, key=lambda each: each.from_ms)


def main() -> None:
    """Measure."""
    report = Report("timeline", __doc__, repeats=1, options=OPTIONS)
    seconds = 15.0 if report.quick else float(report.option("--seconds"))
    with tempfile.TemporaryDirectory(prefix="buckets-timeline-") as work:
        folder = Path(work)
        (folder / "events").mkdir()
        os.environ[FOLDER] = work
        spark = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.python.daemon.module": "watched",
        }
        with live_job(ten_rules(int(report.option("--groups"))), spark) as live:
            with live.engine() as engine:
                live.send_history()
                engine.wait_for(HISTORY_EVENTS)
                sent = int(live.producer(int(report.option("--rate")), seconds).communicate()[0])
                engine.wait_for(HISTORY_EVENTS + sent)
            phases = [batch["durationMs"] for batch in engine.batches if "durationMs" in batch]
        batches, took_ms, usual = usual_steps(list(steps_of(folder)))
    of_spark = {name: median(each.get(name, 0) for each in phases[len(phases) // 2 :]) for name in phases[-1]}
    report.found |= {"batches": batches, "took_ms": took_ms, "steps": [step._asdict() for step in usual]}
    report.found["durationMs"] = of_spark
    rows = [(step.where, step.what, f"{step.times:g}", f"{step.from_ms:.1f}", f"{step.took_ms:.1f}") for step in usual]
    rows += [("Spark's progress", name, "", "", f"{took:g}") for name, took in of_spark.items()]
    title = f"A batch of {took_ms:.0f} ms, of {batches:,}; ms"
    report.table(title, ("Where", "What", "Times", "From", "Took"), rows)

    def draw(axes: Axes) -> None:
        colours = {where: f"C{number}" for number, where in enumerate(sorted({step.where for step in usual}))}
        for number, step in enumerate(usual):
            axes.barh(number, max(step.took_ms, took_ms / 500), left=step.from_ms, color=colours[step.where])
        axes.set_yticks(range(len(usual)), [f"{step.where}: {step.what}" for step in usual], fontsize=5)
        axes.invert_yaxis()
        axes.set(xlabel="ms since the batch before had been written", title=title, xlim=(0, took_ms * 1.2))

    report.write(draw)


if __name__ == "__main__":
    main()

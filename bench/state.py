"""How many bytes of state an event takes, and whether memory stays flat.

- `raw`: 1,000 keys with 100 events an hour, every event kept raw for a window of 24 hours.
- `fine`: one key with 60 events a minute for 30 days and a window of 30 days, every event kept raw.
- `coarse`: the same, with events kept raw for an hour and buckets of a minute after it.

Bytes are the lengths of the keys and values of all entries of all map states, before compression. No event is older
than its horizon at the end, so the state holds all of them. Memory is the resident set of the JVM and of the Python
processes (pages that these share count for each), once a second, over 7,200,000 events of the main job with a window of
an hour.
"""

import json
import tempfile
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from matplotlib.axes import Axes
from measure import DATA, HERE, WARM_UP_BATCHES, child, rate, read_batches
from memory import Memory
from report import QUICK_ROWS, Goal, Report
from steady import Steady, write_steady
from trial import FIVE, Trial

KEYS = Steady(keys=1_000, events_in_window=2_400, window="24h", files=8)
ONE_KEY = Steady(keys=1, events_in_window=2_592_000, window="30d", files=9, rows_per_file=288_000)
RUNNING = Steady(keys=1_000, events_in_window=100, files=24)
COARSE = {"tail": "1h", "resolution": "1m"}
CASES = {"raw": (KEYS, "24h", {}), "fine": (ONE_KEY, "30d", {}), "coarse": (ONE_KEY, "30d", COARSE)}
MOST_RAW_BYTES = 24
MOST_COARSE_OF_FINE = 1 / 20
MOST_GROWTH = 1.1
MB = 2**20


def sized(steady: Steady, report: Report) -> Steady:
    """A data set as it is, or with tiny files."""
    return replace(steady, rows_per_file=QUICK_ROWS) if report.quick else steady


def run(trial: Trial, work: Path, memory: Memory | None = None) -> list[dict]:
    """Run the product; its batches."""
    sample = memory.sample if memory else lambda process_id: None
    printed = child([str(HERE / "ours.py"), json.dumps(asdict(trial)), str(work)], sample)
    return read_batches(printed)


def bytes_of(name: str, report: Report) -> float:
    """Fill the state of one case and read it; bytes an event."""
    steady, window, precision = CASES[name]
    trial = Trial(str(write_steady(sized(steady, report), DATA)), FIVE, (window,), precision=precision)
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        batches = run(trial, Path(work) / "ours")
        size = json.loads(child([str(HERE / "state_size.py"), f"{work}/ours/checkpoint/spark"]))
    events = sum(batch["events"] for batch in batches)
    total = sum(state["bytes"] for state in size["states"].values())
    found = {"events": events, "bytes": total, "bytes_an_event": total / events, "rate": rate(batches)}
    report.found[name] = found | size | {"trial": asdict(trial) | {"data": Path(trial.data).name}, "batches": batches}
    report.console.print(
        f"  {name}: {total / events:.2f} bytes an event, {rate(batches):,.0f} events/s", highlight=False
    )
    return total / events


def memory_of(report: Report) -> Memory:
    """Run the main job and watch its memory, from the end of the warm-up to the last batch."""
    trial = Trial(str(write_steady(sized(RUNNING, report), DATA)), sink="alerts")
    memory = Memory()
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        batches = run(trial, Path(work) / "ours", memory)
    start_s = datetime.fromisoformat(batches[WARM_UP_BATCHES]["at"]).timestamp()
    end_s = datetime.fromisoformat(batches[-1]["at"]).timestamp() + batches[-1]["ms"] / 1000
    thirds = memory.thirds(start_s, end_s)
    report.table(
        "Memory in the first, middle and last third, MB",
        ("Of", "First", "Middle", "Last"),
        [(kind, *(f"{each / MB:,.0f}" for each in medians)) for kind, medians in thirds.items()],
    )
    report.found["memory"] = {"thirds": thirds, "start_s": start_s, "end_s": end_s, "samples": memory.samples}
    report.found["memory"] |= {"rate": rate(batches), "batches": batches}
    for kind, (_, middle, last) in thirds.items():
        report.goal(Goal(f"memory of {kind}: last third, of the middle", last / middle, at_most=MOST_GROWTH))
    return memory


def main() -> None:
    """Measure."""
    report = Report("state", __doc__, repeats=1)
    each = {name: bytes_of(name, report) for name in CASES}
    report.goal(Goal("raw: bytes an event", each["raw"], at_most=MOST_RAW_BYTES))
    report.goal(Goal("coarse: bytes an event, of fine", each["coarse"] / each["fine"], at_most=MOST_COARSE_OF_FINE))
    memory = memory_of(report)

    def draw(axes: Axes) -> None:
        start_s = memory.samples[0][0]
        times = [at_s - start_s for at_s, _ in memory.samples]
        kinds = list(memory.samples[0][1])
        axes.stackplot(times, [[found[kind] / MB for _, found in memory.samples] for kind in kinds], labels=kinds)
        axes.axvline(report.found["memory"]["start_s"] - start_s, color="k", linestyle=":", label="end of the warm-up")
        axes.set_xlabel("seconds")
        axes.set_ylabel("resident memory, MB")
        in_words = ", ".join(f"{name} {size:.2f}" for name, size in each.items())
        axes.set_title(
            f"Memory of the main job over {sized(RUNNING, report).events:,} events\n(state, bytes an event: {in_words})"
        )
        axes.legend(loc="lower right")

    report.write(draw)


if __name__ == "__main__":
    main()

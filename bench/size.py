"""What does a job cost, and can it be known beforehand? Constants fitted on some runs, and others predicted by them.

    python bench/size.py [--constants FILE] [--given FILE]

A run is a job over payments whose keys are alike, in batches of several sizes. All runs follow each other in a session
whose Java is warm, once in their order and once in the other, and the lesser of the two counts. Of each size the CPU of
Python and that of Java, without its compilers and its garbage collector, and the bytes that the state store is given
are fitted by what the batches do (`buckets.size.constants`), with no constant below zero and by relative errors.
Held-out runs have other groupings, keys, shards and sizes; nothing of them is fitted. What collecting garbage adds, and
memory, is known from three more runs in sessions of their own. With `--constants` the constants are written into a
file, as `buckets size --constants` reads it; the product's own is `buckets/size/constants.yaml`. With
`--given` the constants of a file predict the held-out runs, and only these are run.
"""

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median

import numpy as np
import yaml
from matplotlib.axes import Axes
from measure import HERE, Batches, child, machine
from report import Goal, Report
from scipy.optimize import nnls
from size_data import Shape, Stage, write_shape
from size_state import (
    CASES,
    NAMES,
    Filled,
    beside_texts,
    entry_bytes,
    measured_bytes,
    parts_of,
    predicted_bytes,
    slot_bytes,
)

from buckets.config.job import load_job
from buckets.size.constants import (
    TERMS,
    Constants,
    MemoryBytes,
    PerTerm,
    State,
    StoredBytes,
    batch_amounts,
    read_constants,
)
from buckets.size.forecast import Batch, slots_of
from buckets.size.workload import Cluster, Kept, SizeQuestion, Workload, workload_of

SIZES: tuple[Stage, ...] = ((500, 12), (5_000, 8), (50_000, 5))
SMALLER: tuple[Stage, ...] = ((500, 12), (5_000, 8), (30_000, 6))
SMALLEST: tuple[Stage, ...] = ((500, 12), (5_000, 8), (20_000, 6))
WARM = Shape("warm", 4, 5_000, 8, ((500, 90), (20_000, 6)))
"""Not fitted: Java is not warm yet."""
SHAPES = (
    Shape("4 groupings", 4, 20_000, 8, SIZES),
    Shape("1 grouping, 1 task", 1, 20_000, 8, SIZES, tasks=1),
    Shape("8 groupings, 32 shards", 8, 20_000, 32, SMALLER),
    Shape("2 groupings, 64 shards", 2, 50_000, 64, SIZES),
    Shape("12 groupings", 12, 10_000, 8, SMALLER),
    Shape("3 groupings, 5 features each", 3, 20_000, 8, SMALLER, features=5),
    Shape("4 groupings, 2,000 keys", 4, 2_000, 8, SMALLER),
    Shape("2 groupings, JSON lines", 2, 20_000, 8, SIZES, kind="json"),
    Shape("2 groupings, 5 % in memory", 2, 200_000, 8, SMALLEST, state=(4, 2)),
    Shape("2 groupings, long timelines", 2, 300, 8, SMALLER),
    Shape(
        "3 groupings, windows of 5 m", 3, 50_000, 8, SMALLER,
        window="5m", gap_ms=20, lateness="0ms",
    ),
    Shape("7 groupings, 12 shards", 7, 30_000, 12, ((2_000, 12), (25_000, 6)), held_out=True),
    Shape("9 groupings, 6 shards", 9, 8_000, 6, ((1_000, 12), (35_000, 5)), held_out=True),
    Shape("3 groupings, 40 shards, JSON", 3, 80_000, 40, ((3_000, 12), (30_000, 5)), kind="json", held_out=True),
    Shape(
        "1 grouping, 10 % in memory, 3 features", 1, 250_000, 10, ((1_500, 12), (12_000, 8)),
        tasks=1, features=3, state=(3, 2), held_out=True,
    ),
)  # fmt: skip
MEMORY_SHAPES = (
    Shape("memory, 4 groupings", 4, 20_000, 8, ((500, 20), (50_000, 8))),
    Shape("memory, 2 groupings", 2, 100_000, 8, ((5_000, 20), (100_000, 6))),
    Shape("memory, 8 groupings", 8, 50_000, 16, ((10_000, 20), (60_000, 6)), held_out=True),
)
"""Each in a session of its own, since Java keeps what earlier jobs have needed."""
TEXT_BYTES = 16
WITHIN = 0.2
DISK_BYTES, DISK_BLOCK = 256 << 20, 8 << 20
OUTPUTS = {"python_us": "python_s", "jvm_us": "work_s", "put_bytes": "put_bytes"}
"""What is fitted: names of constants, and of what was measured of a batch, in seconds or bytes."""
UNITS = {"python_us": 1e-6, "jvm_us": 1e-6, "put_bytes": 1.0}
OF_PUTS = ("shards", "cells", "keys", "kilobytes", "moved", "visits", "pages")
"""What gives bytes to the store."""
OF_CPU = tuple(name for name in TERMS if name != "moved")
"""A cold key that comes into a full log moves another one out, so the cost of both is that of the cold one."""
OF_OUTPUT = {"python_us": OF_CPU, "jvm_us": OF_CPU, "put_bytes": OF_PUTS}


@dataclass(frozen=True)
class Stretch:
    """Batches of one size of a run.

    Attributes:
        shape: the run.
        rows: of each batch.
        amounts: what a batch does.
        slots: tasks at once.
        measured: of a batch on average, by output.
        ms: how long a batch took, the median.
        memory: of all processes at its end.
        known_bytes: what of that is remembered of keys.
    """

    shape: Shape
    rows: int
    workload: Workload
    amounts: PerTerm
    measured: dict[str, float]
    ms: float
    memory: dict[str, int]
    known_bytes: float

    def predicted(self, constants: Constants) -> dict[str, float]:
        """What the model says of `measured` and `ms`."""
        found = {
            measured: sum(self.amounts.costs(getattr(constants, name)).values()) * UNITS[name]
            for name, measured in OUTPUTS.items()
        }
        batch = Batch.of(self.rows, self.amounts, constants)
        found["jvm_s"] = found["work_s"] * (1 + constants.collector)
        return found | {
            "cpu_s": found["python_s"] + found["work_s"],
            "ms": batch.duration_s(slots_of(self.workload)) * 1000,
        }


def stretches_of(shape: Shape, conf: Path, batches: Batches, stored: StoredBytes) -> list[Stretch]:
    """What was measured of a run, size by size."""
    asked = SizeQuestion(
        1000 / shape.gap_ms, {frozenset[str](): shape.keys}, TEXT_BYTES, shape.tasks, Cluster(shape.tasks, 1, 1)
    )
    workload = workload_of(load_job(conf), asked)
    found, begin, events = [], 1, shape.keys
    for rows, count in shape.stages:
        chosen = batches[begin : begin + count]
        begin, before = begin + count, events
        events += rows * count
        kept = [
            Kept(
                min(shape.keys, steady.keys) if steady.raw * steady.keys < events else shape.keys,
                min(steady.raw, (before + events) / 2 / shape.keys),
                0,
            )
            for steady in (grouping.kept(workload.rate) for grouping in workload.groupings)
        ]
        state = State.of(workload, stored, kept)
        measured = {
            "python_s": fmean(batch["cpu_s"] - batch["jvm_s"] for batch in chosen),
            "jvm_s": fmean(batch["jvm_s"] - batch["compiler_s"] for batch in chosen),
            "work_s": fmean(batch["jvm_s"] - batch["compiler_s"] - batch["collector_s"] for batch in chosen),
            "compiler_s": fmean(batch["compiler_s"] for batch in chosen),
            "put_bytes": fmean(batch["put_bytes"] for batch in chosen),
        }
        measured["cpu_s"] = measured["python_s"] + measured["work_s"]
        known = min(state.memory_bytes, workload.log_bytes + workload.cache_bytes)
        amounts = batch_amounts(workload, state, rows)
        ms = median(batch["ms"] for batch in chosen)
        found.append(Stretch(shape, rows, workload, amounts, measured, ms, chosen[-1]["memory"], known))
    return found


def run(work: Path, stored: StoredBytes, shapes: Sequence[Shape]) -> list[Stretch]:
    """Run some in one session; what was measured of each, size by size."""
    work.mkdir()
    confs = [write_shape(shape, work / str(number)) for number, shape in enumerate(shapes)]
    lines = [json.loads(line) for line in child([str(HERE / "size_run.py"), *map(str, confs)]).splitlines()]
    return [
        stretch
        for number, (shape, conf) in enumerate(zip(shapes, confs, strict=True))
        for stretch in stretches_of(shape, conf, [line for line in lines if line["conf"] == number], stored)
    ]


def lesser_of_rounds(rounds: Sequence[Stretch]) -> list[Stretch]:
    """Of the two rounds of each run what was less, since other work of the machine can only add to it."""
    by_run: dict[tuple[str, int], list[Stretch]] = {}
    for stretch in rounds:
        by_run.setdefault((stretch.shape.name, stretch.rows), []).append(stretch)
    found = []
    for both in by_run.values():
        measured = {name: min(stretch.measured[name] for stretch in both) for name in both[0].measured}
        measured["cpu_s"] = measured["python_s"] + measured["work_s"]
        found.append(replace(both[0], measured=measured, ms=min(stretch.ms for stretch in both)))
    return found


def fitted_costs(stretches: Sequence[Stretch], output: str) -> PerTerm:
    """The constants of one output, none below zero, with the least sum of squares of relative errors."""
    names = OF_OUTPUT[output]
    rows = np.array([[getattr(stretch.amounts, name) for name in names] for stretch in stretches])
    wanted = np.array([stretch.measured[OUTPUTS[output]] for stretch in stretches])
    weights = 1 / np.maximum(wanted, wanted.max() * 1e-4)
    rows, wanted = rows * weights[:, None], wanted * weights
    scale = np.where(rows.max(0) > 0, rows.max(0), 1)
    solved, _ = nnls(rows / scale, wanted)
    costs = solved / scale / UNITS[output]
    return PerTerm(**{name: float(f"{cost:.4g}") for name, cost in zip(names, costs, strict=True)})


def collector_share(stretches: Sequence[Stretch]) -> float:
    """What collecting garbage adds to Java's work."""
    both, work = (sum(stretch.measured[name] for stretch in stretches) for name in ("jvm_s", "work_s"))
    return both / work - 1


def fitted_state(sizes: Mapping[Filled, tuple[float, float]]) -> StoredBytes:
    """What a key takes, by what timelines and schedule of some take."""
    chosen = [case for case in CASES if not case.held_out]
    wanted = np.array([beside_texts(case, sizes[case][0]) for case in chosen])
    rows = np.array([parts_of(case) for case in chosen]) / wanted[:, None]
    solved, _ = nnls(rows, np.ones(len(chosen)))
    slot = fmean(slot_bytes(case, sizes[case][1]) for case in chosen)
    named = {name: round(float(size), 2) for name, size in zip(NAMES, solved, strict=True)}
    return StoredBytes(**named, slot=round(slot, 2), entry=entry_bytes())


def fitted_memory(stretches: Sequence[Stretch]) -> MemoryBytes:
    """What processes take, from runs in sessions of their own."""
    least = stretches[0].memory
    names = {"driver": "Python driver", "jvm": "JVM", "worker": "Python workers"}
    fixed = sum(least.values()) - stretches[0].known_bytes
    grown = np.array([sum(stretch.memory.values()) - stretch.known_bytes - fixed for stretch in stretches])
    touches = np.array([stretch.amounts.touches for stretch in stretches])
    touch = float(max(0.0, (grown @ touches) / (touches @ touches)))
    base = {name: float(least[kind]) for name, kind in names.items()}
    base["worker"] = max(0.0, base["worker"] - stretches[0].known_bytes) / stretches[0].workload.cluster.cores
    return MemoryBytes(**base, touch=round(touch))


def disk_bytes_s() -> float:
    """What the disk of the temporary folder takes in a second, with a sync at the end."""
    block = os.urandom(DISK_BLOCK)
    with tempfile.NamedTemporaryFile() as file:
        started_s = time.monotonic()
        for _ in range(DISK_BYTES // DISK_BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return float(f"{DISK_BYTES / (time.monotonic() - started_s):.2g}")


def deviation(measured: float, predicted: float) -> float:
    """By how much a prediction is off."""
    return predicted / measured - 1


def rows_of(stretches: Sequence[Stretch], constants: Constants) -> list[dict[str, object]]:
    """Predictions beside measurements, a row for each size of each run."""
    rows: list[dict[str, object]] = []
    for stretch in stretches:
        predicted, measured = stretch.predicted(constants), stretch.measured | {"ms": stretch.ms}
        row = {"run": stretch.shape.name, "held_out": stretch.shape.held_out, "rows": stretch.rows}
        row |= {"measured": measured, "predicted": predicted, "amounts": stretch.amounts.model_dump()}
        rows.append(row | {"memory": stretch.memory})
    return rows


def total_deviation(rows: Sequence[dict[str, dict[str, float]]], output: str, counts: Sequence[int]) -> float:
    """By how much the prediction of all batches of a run together is off."""
    measured, predicted = (
        sum(row[side][output] * count for row, count in zip(rows, counts, strict=True))
        for side in ("measured", "predicted")
    )
    return deviation(measured, predicted)


def main() -> None:
    """Fit, predict, compare."""
    report = Report("size", __doc__, repeats=1, options={"--constants": "", "--given": ""})
    given = read_constants(Path(report.option("--given"))) if report.option("--given") else None
    sizes = {case: measured_bytes(case) for case in CASES}
    stored = fitted_state(sizes) if given is None else given.stored
    shapes, own = ([shape for shape in each if given is None or shape.held_out] for each in (SHAPES, MEMORY_SHAPES))
    warm = WARM
    if report.quick:
        shapes, own = [replace(shape, stages=((500, 3),), keys=2_000) for shape in shapes], []
        warm = replace(WARM, stages=((500, 3),))
    with tempfile.TemporaryDirectory(prefix="buckets-size-") as folder:
        disk = disk_bytes_s()
        rounds = run(Path(folder) / "cpu", stored, (warm, *shapes, *reversed(shapes)))[len(warm.stages) :]
        alone = [
            stretch
            for number, shape in enumerate(own)
            for stretch in run(Path(folder) / f"memory-{number}", stored, [shape])
        ]
    stretches = lesser_of_rounds(rounds)
    tell(report, given or fitted_constants(stretches, alone, stored, disk), stretches, alone, sizes)


def fitted_constants(
    stretches: Sequence[Stretch], alone: Sequence[Stretch], stored: StoredBytes, disk_bytes_s: float
) -> Constants:
    """All constants, from runs that are not held out."""
    fitted, own = ([stretch for stretch in each if not stretch.shape.held_out] for each in (stretches, alone))
    return Constants(
        machine=machine(),
        fitted=f"{datetime.now(UTC):%Y-%m-%d}, by bench/size.py",
        **{output: fitted_costs(fitted, output) for output in OUTPUTS},
        collector=round(collector_share(own or fitted), 3),
        stored=stored,
        memory=fitted_memory(own or fitted),
        disk_bytes_s=disk_bytes_s,
    )


def tell(
    report: Report,
    constants: Constants,
    stretches: Sequence[Stretch],
    alone: Sequence[Stretch],
    sizes: Mapping[Filled, tuple[float, float]],
) -> None:
    """Print and keep all that was found."""
    of_state = [
        {
            "case": case.name,
            "held_out": case.held_out,
            "measured": sum(sizes[case]),
            "predicted": predicted_bytes(case, constants.stored),
        }
        for case in CASES
    ]
    rows = rows_of(stretches, constants)
    report.found |= {"constants": constants.model_dump(), "runs": rows, "state": of_state}
    names = ("cpu_s", "python_s", "work_s", "put_bytes", "ms")
    report.table(
        "Predicted, of measured",
        ("Run", "Rows", "", "CPU, ms", *names),
        [
            [
                row["run"], f"{row['rows']:,}", "held out" if row["held_out"] else "",
                f"{row['measured']['cpu_s'] * 1000:,.0f}",
                *(f"{deviation(row['measured'][name] or 1, row['predicted'][name]):+.0%}" for name in names),
            ]
            for row in rows
        ],
    )  # fmt: skip
    held_out = [shape for shape in dict.fromkeys(stretch.shape for stretch in stretches) if shape.held_out]
    totals = report.found["held_out"] = {}
    for shape in held_out:
        own = [row for row in rows if row["run"] == shape.name]
        counts = [count for _, count in shape.stages]
        totals[shape.name] = {name: total_deviation(own, name, counts[: len(own)]) for name in names}
        report.goal(Goal(f"{shape.name}: CPU, off by", abs(totals[shape.name]["cpu_s"]), at_most=WITHIN))
        report.goal(Goal(f"{shape.name}: bytes put, off by", abs(totals[shape.name]["put_bytes"]), at_most=WITHIN))
    for case in of_state:
        if case["held_out"]:
            off = abs(deviation(case["measured"], case["predicted"]))
            report.goal(Goal(f"state, {case['case']}: bytes of a key, off by", off, at_most=WITHIN))
    report.found["memory"] = kept = []
    memory = constants.memory
    for stretch in alone:
        base = memory.driver + memory.jvm + memory.worker * stretch.workload.cluster.cores
        predicted = base + memory.touch * stretch.amounts.touches + stretch.known_bytes
        measured = sum(stretch.memory.values())
        row = {"run": stretch.shape.name, "rows": stretch.rows, "measured": measured, "predicted": predicted}
        found = stretch.predicted(constants)
        row["cpu_s"] = stretch.measured["python_s"] + stretch.measured["jvm_s"]
        row["predicted_cpu_s"] = found["python_s"] + found["jvm_s"]
        kept.append(row | {"held_out": stretch.shape.held_out, "of": stretch.memory})
        if stretch.shape.held_out:
            off = abs(deviation(measured, predicted))
            report.goal(Goal(f"{stretch.shape.name}, {stretch.rows:,} rows: off by", off, at_most=WITHIN))
    report.table(
        "In sessions of their own, in their first minute: memory of all processes in MB, CPU of a batch in ms",
        ("Run", "Rows", "Memory", "Predicted", "CPU", "Predicted"),
        [
            [
                row["run"],
                f"{row['rows']:,}",
                *(f"{row[side] / 1e6:,.0f}" for side in ("measured", "predicted")),
                *(f"{row[side] * 1000:,.0f}" for side in ("cpu_s", "predicted_cpu_s")),
            ]
            for row in kept
        ],
    )
    if report.option("constants"):
        write_constants(Path(report.option("constants")), constants)

    def draw(axes: Axes) -> None:
        for is_held_out in (False, True):
            chosen = [row for row in rows if row["held_out"] == is_held_out]
            axes.plot(
                [row["measured"]["cpu_s"] * 1000 for row in chosen],
                [row["predicted"]["cpu_s"] * 1000 for row in chosen],
                "o",
                label="held out" if is_held_out else "fitted",
            )
        ends = [
            min(row["measured"]["cpu_s"] for row in rows) * 1000,
            max(row["measured"]["cpu_s"] for row in rows) * 1000,
        ]
        for factor, style in ((1, "k-"), (1 - WITHIN, "k:"), (1 + WITHIN, "k:")):
            axes.plot(ends, [end * factor for end in ends], style, linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="measured, ms of CPU a batch", ylabel="predicted, ms")
        axes.set_title("CPU of a batch, predicted and measured (dotted: 20 %)")
        axes.legend()

    report.write(draw)


def write_constants(path: Path, constants: Constants) -> None:
    """Write a file of constants."""
    path.write_text(yaml.safe_dump(constants.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()

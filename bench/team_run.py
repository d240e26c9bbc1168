"""Runs a configuration with the product that is on PYTHONPATH, and prints a line of JSON for each batch.

    python bench/team_run.py CONF

Of each batch: `events`, `alerts`, `ms`; `cpu_s`, the CPU that this process, its JVM and their workers took for it,
`jvm_s`, that of the JVM in it, and in that `compiler_s` and `collector_s`, of its compilers and its garbage collector;
`memory`, what they have in memory together, in bytes by kind;
`put_bytes`, what the state store was given, and `moved_bytes`, what it wrote besides: into its files, when it merged
these, and into the checkpoint.
"""

import contextlib
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memory import descendants, shared_out
from pyspark.sql import SparkSession

from buckets.config.job import Job, load_job
from buckets.monitor.pace import BatchReport
from buckets.spark.prepared_job import Listener, job_session, prepare

MERGED = ("TotalBytesWrittenByFlush", "TotalBytesWrittenByCompaction")
COPIED = "BytesCopied"
"""Of the last snapshot, until there is another one; so it counts where it has changed."""
COMPILER, COLLECTOR = re.compile(r"C[12] Compiler"), re.compile(r"GC Thread|G1 ")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """What processes have taken so far, in s.

    Attributes:
        all_s: this process and all below it, also children that have ended, without looking at them.
        jvm_s: of it the JVM.
        compiler_s: of that its compilers, which have little to do once a job has run for long.
        collector_s: of the JVM its garbage collector.
    """

    all_s: float
    jvm_s: float
    compiler_s: float
    collector_s: float

    @classmethod
    def now(cls) -> "Cpu":
        """What they have taken by now."""
        all_s, jvm_s, compiler_s, collector_s = 0.0, 0.0, 0.0, 0.0
        for process_id in descendants(os.getpid()):
            process = Path(f"/proc/{process_id}")
            own_s, ended_s = _times_s(process)
            all_s += own_s + ended_s
            if "java" in _name(process):
                jvm_s += own_s
                threads = [(_name(thread), thread) for thread in (process / "task").iterdir()]
                compiler_s += sum(_times_s(thread)[0] for name, thread in threads if COMPILER.match(name))
                collector_s += sum(_times_s(thread)[0] for name, thread in threads if COLLECTOR.match(name))
        return cls(all_s, jvm_s, compiler_s, collector_s)

    def since(self, before: "Cpu") -> dict[str, float]:
        """What they have taken since then."""
        return {name: round(value - getattr(before, name), 2) for name, value in asdict(self).items()}


def _times_s(task: Path) -> tuple[float, float]:
    """The CPU that a process or a thread has taken, and its children that have ended; none if it is gone."""
    with contextlib.suppress(OSError):
        ticks = [int(field) for field in (task / "stat").read_text().rpartition(")")[2].split()[11:15]]
        return sum(ticks[:2]) / TICKS_PER_S, sum(ticks[2:]) / TICKS_PER_S
    return 0.0, 0.0


def _name(task: Path) -> str:
    """The name of a process or a thread; empty if it is gone."""
    with contextlib.suppress(OSError):
        return (task / "comm").read_text()
    return ""


def measured_batches(job: Job, session: SparkSession) -> list[dict[str, Any]]:
    """Run a job to its end; what was measured of each batch."""
    reports: list[tuple[BatchReport, Cpu, dict[str, int]]] = []
    looking_s = [0.0]

    def note(report: BatchReport) -> None:
        started_s = time.thread_time()
        spent, memory = Cpu.now(), shared_out(os.getpid())
        reports.append((report, replace(spent, all_s=spent.all_s - looking_s[0]), memory, query.state_sizes))
        looking_s[0] += time.thread_time() - started_s

    query, before = prepare(job).query(session, Listener(note)), Cpu.now()
    query.run(None)
    lines, copied = [], 0
    for (report, spent, memory, sizes), progress in zip(reports, query.progress(), strict=True):
        rocksdb = {name.removeprefix("rocksdb"): value for name, value in sizes.items()}
        taken, before = spent.since(before), spent
        moved = sum(rocksdb[name] for name in MERGED) + (rocksdb[COPIED] if rocksdb[COPIED] != copied else 0)
        lines.append(
            {
                "events": report.account.events_in,
                "alerts": sum(group.alerts for group in report.account.groups),
                "ms": progress["durationMs"]["triggerExecution"],
                "cpu_s": taken["all_s"],
                "jvm_s": taken["jvm_s"],
                "compiler_s": taken["compiler_s"],
                "collector_s": taken["collector_s"],
                "memory": memory,
                "scored_s": round(report.scored_s, 3),
                "written_s": round(report.written_s, 3),
                "put_bytes": rocksdb["TotalBytesWritten"],
                "moved_bytes": moved,
            }
        )
        copied = rocksdb[COPIED]
    return lines


def main() -> None:
    """Run, and print what was measured."""
    job = load_job(Path(sys.argv[1]))
    for line in measured_batches(job, job_session(job)):
        print(json.dumps(line))


if __name__ == "__main__":
    main()

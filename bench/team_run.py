"""Runs a configuration with the product that is on PYTHONPATH, and prints a line of JSON for each batch.

    python bench/team_run.py CONF

Of each batch: `events`, `alerts`, `ms`; `cpu_s`, the CPU that this process, its JVM and their workers took for it;
`memory`, what they have in memory together, in bytes by kind;
`put_bytes`, what the state store was given, and `moved_bytes`, what it wrote besides: into its files, when it merged
these, and into the checkpoint.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from memory import descendants, shared_out

from buckets.config.job import load_job
from buckets.spark.prepared_job import Listener, job_session, prepare
from buckets.spark.query import BatchReport

MOVED = ("TotalBytesWrittenByFlush", "TotalBytesWrittenByCompaction", "BytesCopied")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """The CPU that this process and all below it have taken so far, in s; also of children that have ended."""
    ticks = 0
    for process_id in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def main() -> None:
    """Run, and print what was measured."""
    job = load_job(Path(sys.argv[1]))
    reports: list[tuple[BatchReport, float, dict[str, int]]] = []
    note = Listener(lambda report: reports.append((report, cpu_s(), shared_out(os.getpid()))))
    query = prepare(job).query(job_session(job), note)
    query.run(None)
    before_s = 0.0
    for (report, spent_s, memory), progress in zip(reports, query.progress(), strict=True):
        (state,) = progress["stateOperators"]
        rocksdb = {name.removeprefix("rocksdb"): value for name, value in state["customMetrics"].items()}
        line = {
            "events": report.account.events_in,
            "alerts": sum(group.alerts for group in report.account.groups),
            "ms": progress["durationMs"]["triggerExecution"],
            "cpu_s": round(spent_s - before_s, 2),
            "memory": memory,
            "scored_s": round(report.scored_s, 3),
            "written_s": round(report.written_s, 3),
            "put_bytes": rocksdb["TotalBytesWritten"],
            "moved_bytes": sum(rocksdb[name] for name in MOVED),
        }
        before_s = spent_s
        print(json.dumps(line))


if __name__ == "__main__":
    main()

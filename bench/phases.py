"""Where the time of an event goes inside Python: both stages over steady data in one process, without Spark.

Prints one line of JSON: seconds for each phase, over all batches but the first.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from trial import Trial, write_conf

from buckets.config.job import load_job
from buckets.engine.batch import fan_out as fan_out_module
from buckets.engine.batch.fan_out import fan_out
from buckets.engine.eviction.eviction import Eviction
from buckets.engine.stages import shard
from buckets.engine.stages.in_memory import memory_store
from buckets.engine.stages.shard import Scorer
from buckets.engine.stages.shard_plans import GroupSet
from buckets.engine.storage.shard_store import StoredHeads
from buckets.events.arrivals import POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.rules.rule_set import first_rule_set

PIECE_ROWS = 200_000


class Stopwatch:
    """Adds up the time spent in functions that it stands in for."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: object, name: str, phase: str) -> None:
        """Put a timed stand-in for a function in its place."""
        original: Callable[..., object] = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            started_s = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[phase] += time.perf_counter() - started_s

        setattr(owner, name, timed)


def arrivals(path: Path) -> list[pa.RecordBatch]:
    """A file of steady data in the form of `buckets.events.arrivals`."""
    table = pq.read_table(path)
    columns = {
        SOURCE: pa.array([""] * len(table)),
        SOURCE_ORDER: pa.array([0] * len(table)),
        POSITION: table["off"],
        field_column(0): table["event_id"],
        field_column(1): table["ts"],
        field_column(2): table["key"],
        field_column(3): table["amount"],
    }
    return pa.table(columns).combine_chunks().to_batches(max_chunksize=PIECE_ROWS)


def main() -> None:
    """Measure, and print."""
    data, files_per_batch, work = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    job = load_job(write_conf(Trial(str(data.resolve())), work))
    rule_set, schema, engine = first_rule_set(job.rules), job.event_schema, job.settings.engine
    watch = Stopwatch()
    watch.watch(fan_out_module, "parse", "types and dead letters")
    watch.watch(fan_out_module, "_sent", "columns of what shards get")
    watch.watch(fan_out_module, "assign_shards", "keys and shards")
    watch.watch(shard, "unpack_shard", "unpacking")
    watch.watch(GroupSet, "keyed", "what timelines keep of events")
    watch.watch(shard, "score_all", "kernel: windows and timelines")
    watch.watch(StoredHeads, "write", "putting back what changed")
    watch.watch(Eviction, "note", "schedule: keys that came")
    watch.watch(Eviction, "end", "schedule: keys that are due")
    watch.watch(shard, "alert_table", "alerts")
    scorer = Scorer(schema, engine, evaluations=False)
    stores = [memory_store() for _ in range(engine.shards)]
    files = sorted(data.glob("*.parquet"))
    events = 0
    total_s: dict[str, float] = defaultdict(float)
    for start in range(0, len(files), files_per_batch):
        if start == files_per_batch:
            watch.seconds.clear()
            total_s.clear()
            events = 0
        shards: dict[int, list[bytes]] = defaultdict(list)
        for file in files[start : start + files_per_batch]:
            for rows in arrivals(file):
                started_s = time.perf_counter()
                for message in fan_out(rows, rule_set, schema, engine).messages():
                    shards[message.shard].append(message.payload)
                total_s["fan_out"] += time.perf_counter() - started_s
                events += rows.num_rows
        started_s = time.perf_counter()
        for number, payloads in shards.items():
            for _ in scorer.score(payloads, rule_set, stores[number]):
                pass
        total_s["shards"] += time.perf_counter() - started_s
    phases = {phase: seconds / events * 1e6 for phase, seconds in watch.seconds.items()}
    rest = {f"{stage}, all of it": seconds / events * 1e6 for stage, seconds in total_s.items()}
    print(json.dumps({"events": events, "us_per_event": phases | rest}))


if __name__ == "__main__":
    main()

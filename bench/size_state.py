"""What the state of a key takes: timelines that the engine has filled in this process, counted byte by byte."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from buckets.config.engine import EngineSettings, JobPrecision
from buckets.engine.stages.in_memory import InMemoryJob
from buckets.engine.stages.shard import Scorer
from buckets.engine.storage.arena import ENTRY_BYTES
from buckets.engine.storage.shard_store import Entries
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.size.constants import StoredBytes, key_bytes
from buckets.size.workload import GROUP_BYTES, Grouping, Kept, Width

START_MS, DAY_MS, MINUTE_MS = 1_700_000_000_000, 86_400_000, 60_000
KEYS = 400
BATCHES = 8


@dataclass(frozen=True)
class Filled:
    """Timelines of one grouping, filled with events that are spread evenly over the window.

    Attributes:
        name: what it is called in tables.
        events: of a key.
        tracks: measures that rules sum up.
        text_bytes: how long ids and keys are.
        tail_ms: how far back events are kept raw; None: all are.
        held_out: not fitted, but predicted.
    """

    name: str
    events: int
    tracks: int
    text_bytes: int
    tail_ms: int | None = None
    held_out: bool = False

    @property
    def grouping(self) -> Grouping:
        """What the model knows of it."""
        widths = () if self.tail_ms is None else (Width(self.tail_ms, DAY_MS, MINUTE_MS),)
        return Grouping("key", 1, KEYS, self.tracks, self.tracks, DAY_MS, self.tail_ms or DAY_MS, widths)

    @property
    def kept(self) -> Kept:
        """What the model says that timelines hold, at the rate at which the events come."""
        held = self.grouping.kept(self.events * KEYS / DAY_MS * 1000)
        return Kept(KEYS, held.raw * held.keys / KEYS, held.buckets * held.keys / KEYS)


CASES = (
    Filled("1 event of a key", 1, 1, 16),
    Filled("20 events", 20, 1, 16),
    Filled("20 events, three measures", 20, 3, 16),
    Filled("1,000 events", 1000, 1, 36),
    Filled("1,000 events, three measures", 1000, 3, 16),
    Filled("2,000 events, raw for 6 h, then buckets", 2000, 1, 16, DAY_MS // 4),
    Filled("2,000 events, raw for 6 h, two measures", 2000, 2, 16, DAY_MS // 4),
    Filled("6 events, two measures", 6, 2, 24, held_out=True),
    Filled("300 events, two measures", 300, 2, 20, held_out=True),
    Filled("5,000 events, raw for 12 h", 5000, 1, 12, DAY_MS // 2, held_out=True),
)
NAMES = ("head", "cell", "track", "bucket", "bucket_track")


def measured_bytes(case: Filled) -> tuple[float, float]:
    """Fill it; bytes of the timelines of a key, and of its place in the schedule, with the key in both."""
    schema = EventSchema.model_validate(
        {
            "name": "filled",
            "event_id": "id",
            "event_time": {"field": "at", "unit": "ms"},
            "attributes": {"key": "string"},
            "measures": {f"amount{track}": {"scale": 0} for track in range(case.tracks)},
        }
    )
    rules = [
        Rule.model_validate(
            {
                "rule_id": f"rule-{track}",
                "group_by": ["key"],
                "aggregate": {"function": "sum", "measure": f"amount{track}"},
                "window": {"length": "24h"},
                "limit": {"operator": ">", "value": 10**15},
            }
        )
        for track in range(case.tracks)
    ]
    rule_set = revise(RuleSet(0, (), (), {}), changes_between((), rules), schema, (), 0).rule_set
    tail = "all" if case.tail_ms is None else f"{case.tail_ms // MINUTE_MS}m"
    engine = EngineSettings(
        shards=1, allowed_lateness="0ms", precision=JobPrecision.model_validate({"tail": tail, "resolution": "1m"})
    )
    job = InMemoryJob(Scorer(schema, engine, evaluations=False))
    random = np.random.default_rng(1)
    times = START_MS + np.sort(random.integers(0, DAY_MS, case.events * KEYS))
    keys = random.permutation(np.repeat(np.arange(KEYS), case.events))
    width = case.text_bytes
    table = pa.table(
        {
            "id": pa.array(np.char.zfill(np.arange(len(times)).astype("U"), width)),
            "at": pa.array(times),
            "key": pa.array(np.char.zfill(keys.astype("U"), width)),
            **{f"amount{track}": pa.array(random.integers(100, 500_000, len(times))) for track in range(case.tracks)},
        }
    )
    rows = -(-len(times) // BATCHES)
    for first in range(0, len(times), rows):
        job.score_batch(list(table_arrivals(table.slice(first, rows), schema)), rule_set)
    (store,) = job.stores.values()
    return (_size(store.heads) + _size(store.pages)) / KEYS, _size(store.schedule) / KEYS


def _size(entries: Entries) -> int:
    keys = list(entries.list_keys())
    return sum(map(len, keys)) + sum(map(len, entries.get(keys)))


def parts_of(case: Filled) -> list[float]:
    """How many of each of `NAMES` a key has."""
    kept = case.kept
    return [1, kept.raw, kept.raw * case.tracks, kept.buckets, kept.buckets * case.tracks]


def beside_texts(case: Filled, timeline_bytes: float) -> float:
    """What of the timelines of a key is not its text, nor the ids of events."""
    return timeline_bytes - (GROUP_BYTES + case.text_bytes) - case.kept.raw * case.text_bytes


def slot_bytes(case: Filled, schedule_bytes: float) -> float:
    """What a key takes in the schedule beside itself."""
    return schedule_bytes - case.text_bytes


def predicted_bytes(case: Filled, stored: StoredBytes) -> float:
    """What the model says of all bytes of a key."""
    return key_bytes(case.grouping, case.kept, case.text_bytes, stored).state


def entry_bytes() -> float:
    """What an entry takes in memory: what the code says, and on average half of the unit to which it is rounded up."""
    return ENTRY_BYTES + 8.0

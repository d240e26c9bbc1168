"""The work of a micro-batch, and its cost on one machine: constants in a file, fitted by `bench/size.py`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1, log1p
from pathlib import Path
from typing import Annotated

from pydantic import Field

from buckets.config.job import of_configuration
from buckets.size.workload import GROUP_BYTES, Grouping, Kept, Workload
from buckets.validation import Checked
from buckets.yaml_file import load_model

FITTED = Path(__file__).with_name("constants.yaml")  # The constants shipped with the program
_LARGEST = 1e15
Cost = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]


class PerTerm(Checked):
    """A number for each term: its amount in a batch, or its unit cost in us of CPU or in bytes."""

    batches: Cost = Field(default=0.0, description="batches")
    tasks: Cost = Field(default=0.0, description="tasks of batches")
    shards: Cost = Field(default=0.0, description="shards that a batch touches")
    cells: Cost = Field(default=0.0, description="groupings in shards")
    rows: Cost = Field(default=0.0, description="events read")
    texts: Cost = Field(default=0.0, description="events decoded from text")
    copies: Cost = Field(default=0.0, description="events sent to shards")
    values: Cost = Field(default=0.0, description="fields of events sent to shards")
    touches: Cost = Field(default=0.0, description="touches: events in groupings")
    keys: Cost = Field(default=0.0, description="keys of a batch")
    kilobytes: Cost = Field(default=0.0, description="KiB of entries written")
    features: Cost = Field(default=0.0, description="features computed")
    conditions: Cost = Field(default=0.0, description="conditions evaluated")
    cold: Cost = Field(default=0.0, description="cold keys")
    moved: Cost = Field(default=0.0, description="keys moved from the log to the store")
    visits: Cost = Field(default=0.0, description="keys visited for eviction")
    pages: Cost = Field(default=0.0, description="pages of long timelines")

    def costs(self, each: "PerTerm") -> dict[str, float]:
        """Return the cost of each term, given the unit costs."""
        return {name: amount * getattr(each, name) for name, amount in self}


TERM_WORDS = {name: field.description or name for name, field in PerTerm.model_fields.items()}
TERMS = tuple(TERM_WORDS)


class StoredBytes(Checked):
    """The size of a key's state, in bytes.

    Attributes:
        head: overhead of each key, without the key itself and its events.
        cell: a single event, without its id and its values.
        track: a value of a single event.
        bucket: a bucket of events.
        bucket_track: one track of a bucket.
        slot: a key in the eviction schedule, without the key itself.
        entry: overhead of an entry in memory, without its key and value.
    """

    head: Cost
    cell: Cost
    track: Cost
    bucket: Cost
    bucket_track: Cost
    slot: Cost
    entry: Cost


class MemoryBytes(Checked):
    """The memory of processes, in bytes.

    Attributes:
        driver: the process that starts the job.
        jvm: the Java process.
        worker: a Python worker, one per core, without memory shared on a machine.
        touch: an event of a batch, per grouping.
    """

    driver: Cost
    jvm: Cost
    worker: Cost
    touch: Cost


class Constants(Checked):
    """All constants of a machine.

    Attributes:
        machine: the machine on which they were fitted.
        fitted: when they were fitted, and by which command.
        python_us: CPU of the driver and the workers.
        jvm_us: CPU of Java, without its compilers and garbage collection.
        collector: garbage collection, as a share of that.
        put_bytes: bytes put into the state store, and so written to the checkpoint.
        stored: the size of a key's state.
        memory: the memory of processes.
        disk_bytes_s: the disk's write rate, in bytes per second.
    """

    machine: dict[str, str | int | float | None]
    fitted: str
    python_us: PerTerm
    jvm_us: PerTerm
    collector: Cost
    put_bytes: PerTerm
    stored: StoredBytes
    memory: MemoryBytes
    disk_bytes_s: Annotated[float, Field(gt=0, le=_LARGEST, allow_inf_nan=False)]


@of_configuration()
def read_constants(path: Path = FITTED) -> Constants:
    """Read a file of constants."""
    return load_model(path, Constants, "constants")


PAGE_CELLS, HEAD_CELLS = 128, 64
"""Cells of a page, and those of a head that never go into one; as `buckets.kernel.score` cuts timelines."""
KIBIBYTE = 1024


@dataclass(frozen=True)
class KeyBytes:
    """The size of a key of a grouping."""

    entry: float  # its key and head as written by a batch
    memory: float  # both in memory, with its entry in the eviction schedule
    state: float  # its whole state


def different(keys: float, events: float) -> float:
    """Return the expected number of distinct keys, out of equally likely ones, among some events."""
    if keys <= 1 or events <= 1:  # one event at most: as many keys as events
        return min(keys, events)
    return -keys * expm1(events * log1p(-1 / keys))


def is_paged(kept: Kept) -> bool:
    """Return whether timelines are so long that parts of them are in pages of the store."""
    return kept.raw + kept.buckets > HEAD_CELLS + PAGE_CELLS


def key_bytes(grouping: Grouping, kept: Kept, text_bytes: int, stored: StoredBytes) -> KeyBytes:
    """Return the size of a key of a grouping."""
    key = GROUP_BYTES + grouping.fields * (text_bytes + 1)
    cell = stored.cell + text_bytes + grouping.tracks * stored.track
    bucket = stored.bucket + grouping.tracks * stored.bucket_track
    events = kept.raw * cell + kept.buckets * bucket
    in_head = (HEAD_CELLS + PAGE_CELLS / 2) / (kept.raw + kept.buckets) if is_paged(kept) else 1.0
    entry = key + stored.head + events * in_head
    slot = key - GROUP_BYTES + stored.slot
    return KeyBytes(entry, entry + stored.entry + slot, key + stored.head + events + slot)


@dataclass(frozen=True)
class State:
    """The size of a workload's state."""

    kept: tuple[Kept, ...]  # by grouping, the contents of its timelines
    keys: tuple[KeyBytes, ...]  # by grouping, the size of a key
    # of each grouping, the share of its keys that are in log and cache, or are known to have no timeline; all of them
    # while nothing has left the log, since it is known then that there is no other
    remembered: tuple[float, ...]
    logged: tuple[float, ...]  # by grouping, the share of its keys in the log

    @classmethod
    def of(cls, workload: Workload, stored: StoredBytes, kept: Sequence[Kept]) -> "State":
        """Return the state of a workload with these contents of timelines."""
        keys = tuple(
            key_bytes(grouping, held, workload.text_bytes, stored)
            for grouping, held in zip(workload.groupings, kept, strict=True)
        )
        all_of_them = (1.0,) * len(keys)
        found = cls(tuple(kept), keys, all_of_them, all_of_them)
        log, known = workload.log_bytes, found.memory_bytes
        if known <= log:
            return found
        living = [held.keys / grouping.keys for grouping, held in zip(workload.groupings, kept, strict=True)]
        room = min(1.0, (log + workload.cache_bytes) / known)
        return replace(
            found,
            remembered=tuple(share * room for share in living),
            logged=tuple(share * (log / known) for share in living),
        )

    @property
    def state_bytes(self) -> float:
        """The whole state, before compression."""
        return sum(held.keys * each.state for held, each in zip(self.kept, self.keys, strict=True))

    @property
    def memory_bytes(self) -> float:
        """The size of all its keys if they are all in memory."""
        return sum(held.keys * each.memory for held, each in zip(self.kept, self.keys, strict=True))


def batch_amounts(workload: Workload, state: State, rows: float) -> PerTerm:
    """Return the amounts of work of a batch of `rows` events."""
    groupings = workload.groupings
    keys = [different(grouping.keys, rows) for grouping in groupings]
    cells = [different(workload.shards, each) for each in keys]
    visits = sum(
        min(1.0, held.keys / (workload.rate * grouping.horizon_ms / 1000))
        for grouping, held in zip(groupings, state.kept, strict=True)
    )
    copies = rows * different(workload.shards, len(groupings))
    paged = sum(map(is_paged, state.kept))
    return PerTerm(
        batches=1,
        tasks=workload.tasks,
        shards=different(workload.shards, sum(keys)),
        cells=sum(cells),
        rows=rows,
        texts=rows * workload.is_text,
        copies=copies,
        values=copies * workload.event_fields,
        touches=rows * len(groupings),
        keys=sum(keys),
        kilobytes=sum(each * size.entry for each, size in zip(keys, state.keys, strict=True)) / KIBIBYTE,
        features=rows * sum(grouping.features for grouping in groupings),
        conditions=rows * workload.conditions,
        cold=sum(each * (1 - share) for each, share in zip(keys, state.remembered, strict=True)),
        moved=sum(each * (1 - share) for each, share in zip(keys, state.logged, strict=True)),
        visits=rows * visits,
        pages=rows * paged / PAGE_CELLS,
    )

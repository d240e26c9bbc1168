"""What a micro-batch does, and what that costs on one machine: constants that `bench/size.py` has fitted, in a file."""

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

FITTED = Path(__file__).with_name("constants.yaml")  # Those that come with the program
_LARGEST = 1e15
Cost = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]


class PerTerm(Checked):
    """A number for each term: how many a batch has of it, or what one costs, in us of CPU or in bytes."""

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
        """Return what all of each cost, of which one costs so much."""
        return {name: amount * getattr(each, name) for name, amount in self}


TERM_WORDS = {name: field.description or name for name, field in PerTerm.model_fields.items()}
TERMS = tuple(TERM_WORDS)


class StoredBytes(Checked):
    """What the state of a key takes, in bytes.

    Attributes:
        head: of each key, beside itself and its events.
        cell: a single event, beside its id and its values.
        track: a value of a single event.
        bucket: a bucket of events.
        bucket_track: what a bucket keeps of one track.
        slot: a key in the schedule of eviction, beside itself.
        entry: what an entry in memory takes beside its key and value.
    """

    head: Cost
    cell: Cost
    track: Cost
    bucket: Cost
    bucket_track: Cost
    slot: Cost
    entry: Cost


class MemoryBytes(Checked):
    """What processes take, in bytes.

    Attributes:
        driver: the process that starts the job.
        jvm: Java.
        worker: a worker of Python, one for each core, beside what all of a machine share.
        touch: of a batch, an event in a grouping.
    """

    driver: Cost
    jvm: Cost
    worker: Cost
    touch: Cost


class Constants(Checked):
    """All constants of a machine.

    Attributes:
        machine: on which they were fitted.
        fitted: when, and by which command.
        python_us: CPU of the driver and the workers.
        jvm_us: CPU of Java, without its compilers and without collecting garbage.
        collector: what collecting garbage adds to that, as a share of it.
        put_bytes: given to the state store, and so written into the checkpoint.
        stored: what the state of a key takes.
        memory: what processes take.
        disk_bytes_s: what the disk has taken in a second.
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
    """What a key of a grouping takes."""

    entry: float  # its key and its head, as a batch writes them
    memory: float  # both with their place in memory, and its place in the schedule of eviction
    state: float  # all that is kept of it


def different(keys: float, events: float) -> float:
    """Return how many different ones of some equally likely keys there are among some events."""
    if keys <= 1 or events <= 1:  # one event at most: as many keys as events
        return min(keys, events)
    return -keys * expm1(events * log1p(-1 / keys))


def is_paged(kept: Kept) -> bool:
    """Return whether timelines are so long that part of them lies in pages of the store."""
    return kept.raw + kept.buckets > HEAD_CELLS + PAGE_CELLS


def key_bytes(grouping: Grouping, kept: Kept, text_bytes: int, stored: StoredBytes) -> KeyBytes:
    """Return what a key of a grouping takes."""
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
    """What the state of a workload takes."""

    kept: tuple[Kept, ...]  # of each grouping, what its timelines hold
    keys: tuple[KeyBytes, ...]  # of each grouping, what a key takes
    # of each grouping, the share of its keys that are in log and cache, or are known to have no timeline; all of them
    # while nothing has left the log, since it is known then that there is no other
    remembered: tuple[float, ...]
    logged: tuple[float, ...]  # of each grouping, the share of its keys that are in the log

    @classmethod
    def of(cls, workload: Workload, stored: StoredBytes, kept: Sequence[Kept]) -> "State":
        """Return the state of a workload whose timelines hold so much."""
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
        """All of it, before anything is compressed."""
        return sum(held.keys * each.state for held, each in zip(self.kept, self.keys, strict=True))

    @property
    def memory_bytes(self) -> float:
        """What all of its keys take if all are in memory."""
        return sum(held.keys * each.memory for held, each in zip(self.kept, self.keys, strict=True))


def batch_amounts(workload: Workload, state: State, rows: float) -> PerTerm:
    """Return what a batch of so many events does."""
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

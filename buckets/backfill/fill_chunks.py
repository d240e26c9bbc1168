"""The history of a fill as files beside the checkpoint: chunks that shards consume one after the other.

    CHECKPOINT/buckets/fills/3/plan.json        what the archive contributes
    CHECKPOINT/buckets/fills/3/000000042.arrow  a chunk: one row per shard, with its events as `fan_out` packs them
    CHECKPOINT/buckets/fills/3/whole.json       the number of chunks, once all are written

A chunk is written atomically, and each task reads its own row. The pace limits the rows that a batch consumes, so that
the batch takes at most half as long again as usual.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.list_versions import lists_in
from buckets.checkpoint.record_files import BackfillRequests, NumberedRecords, RecordFiles, reader_of
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.checkpoint.source_offsets import records_folder
from buckets.files import remove_tree
from buckets.lists.index import Lists
from buckets.rules.completeness import Piece
from buckets.rules.rule_set import RuleSet

CHUNK_ROWS = 2_000  # The most archived rows in a chunk
_ROWS, _LISTS, _END = b"rows", b"lists", b"end"


@dataclass(frozen=True)
class Chunk:
    """A part of a group's history."""

    packed: Mapping[int, bytes]  # by shard, the events as `fan_out` packs them
    rows: int  # how many rows of the archive it covers
    end: int  # the number of the next arrival in the archive
    lists: Mapping[str, int]  # by name, the list versions that its events have seen


@dataclass(frozen=True)
class Plan:
    """How much goes into a fill."""

    rows: int
    chunks: int


class FillChunks:
    """The chunks of a fill."""

    def __init__(self, checkpoint: Path, number: int) -> None:
        self.folder, self._records = fills_folder(checkpoint) / str(number), RecordFiles(checkpoint)
        self._chunks = NumberedRecords(self._records, self.folder, ".arrow")

    def plan(self) -> Plan | None:
        """Return how much goes into the fill; None while unknown."""
        return self._records.read_if_there(self.folder / "plan.json", reader_of(Plan))

    def keep_plan(self, plan: Plan) -> None:
        """Write how much goes into the fill."""
        self._records.write(self.folder / "plan.json", plan)

    def ready(self) -> int:
        """Return how many chunks have been written, including deleted ones. Cost: one listing."""
        newest = self._chunks.newest()
        return 0 if newest is None else newest + 1

    def total(self) -> int | None:
        """Return the total number of chunks; None while unknown."""
        return self._records.read_if_there(self.folder / "whole.json", lambda record: int(record["chunks"]))

    def end(self) -> int:
        """Return the number of the arrival after the newest chunk; 0 if there is none."""
        ready = self.ready()
        return int(self._table(ready - 1).schema.metadata[_END]) if ready else 0

    def write(self, number: int, chunk: Chunk) -> None:
        """Write a chunk."""
        shards = sorted(chunk.packed)
        metadata = {_ROWS: str(chunk.rows), _END: str(chunk.end), _LISTS: json.dumps(dict(chunk.lists), sort_keys=True)}
        columns = [pa.array(shards, pa.int32()), pa.array([chunk.packed[shard] for shard in shards], pa.large_binary())]
        table = pa.table(columns, names=["shard", "packed"]).replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self._chunks.write_bytes(number, sink.getvalue().to_pybytes())

    def finish(self, chunks: int) -> None:
        """Write the total number of chunks."""
        self._records.write(self.folder / "whole.json", {"chunks": chunks})

    def read(self, number: int, shard: int) -> Piece:
        """Return a shard's part of a chunk."""
        table = self._table(number)
        metadata, at = table.schema.metadata, pc.index(table["shard"], shard).as_py()
        packed = None if at < 0 else table["packed"][at].as_py()
        return Piece(packed, int(metadata[_ROWS]), metadata[_LISTS].decode())

    def forget(self, until: int) -> None:
        """Delete chunks that every shard has consumed, except the newest, after which writing continues."""
        self._chunks.remove(*(number for number in self._chunks.numbers()[:-1] if number < until))

    def remove(self) -> None:
        """Delete the whole fill."""
        remove_tree(self.folder)

    def _table(self, number: int) -> pa.Table:
        return self._records.map_arrow(self._chunks.file(number))


@dataclass(frozen=True)
class ChunkFeed:
    """What a batch takes from a fill's chunks, for one shard."""

    chunks: FillChunks  # the fill's chunks
    checkpoint: Path  # the checkpoint with the list versions
    shard: int  # the shard
    ready: int  # how many chunks exist
    total: int | None  # the total number; None while unknown
    rows: int  # about how many rows the batch takes
    lists: str  # as JSON, by name the list versions that the batch sees

    def chunk(self, number: int) -> Piece:
        """Return an existing chunk."""
        return self.chunks.read(number, self.shard)

    def lists_of(self, versions: str) -> Lists:
        """Return lists in the given versions."""
        return lists_in(self.checkpoint, json.loads(versions))


def fills_folder(checkpoint: Path) -> Path:
    """Return the folder of the chunks of all fills."""
    return records_folder(checkpoint) / "fills"


@dataclass(frozen=True)
class FillStatus:
    """The progress of a backfill for a group."""

    rule_ids: tuple[str, ...]  # the rules that requested it
    group: str | None = None  # the group, in words; None before the job has begun it
    events: int = 0  # the archived rows consumed
    of: int | None = None  # the archived rows in total; None while unknown
    chunk: int = 0  # the chunks consumed
    chunks: int | None = None  # about the total number of chunks; None while unknown
    waiting: int = 0  # the batches of arrivals that wait, summed over the shards

    @property
    def words(self) -> str:
        """The progress in a few words."""
        if self.group is None:
            return "history asked for, not begun"
        if self.of is None or self.chunks is None:
            return f"history of {self.group} begun, the archive is read"
        counted = f"{self.events:,} of {self.of:,} events, chunk {self.chunk:,} of {self.chunks:,}"
        return f"history of {self.group} is filled in: {counted}"

    def to_json(self) -> dict[str, Any]:
        """Return the progress as plain data."""
        return asdict(self)


def read_fills(checkpoint: Path) -> list[FillStatus]:
    """Return the progress of the backfills on a checkpoint; empty if there are none."""
    rule_set, begun = RuleVersions(checkpoint).latest_rule_set() or RuleSet(0, (), (), {}), list[FillStatus]()
    filled = BatchRecords(checkpoint).latest_done()[1].fills if rule_set.fills else {}
    for fill in rule_set.fills:
        plan, so_far = FillChunks(checkpoint, fill.number).plan(), filled.get(fill.number)
        chunk, waiting = (0, 0) if so_far is None else (so_far.chunk, so_far.waiting)
        group = rule_set.filling[fill.number].name
        if plan is None:
            begun.append(FillStatus(fill.rule_ids, group, waiting=waiting))
        else:
            events, chunks = min(chunk * CHUNK_ROWS, plan.rows), max(plan.chunks, chunk)
            begun.append(FillStatus(fill.rule_ids, group, events, plan.rows, chunk, chunks, waiting))
    asked = [FillStatus((request.rule.rule_id,)) for request in BackfillRequests(checkpoint).read()]
    return begun + asked


FIRST_ROWS: Final = 500
MOST_ROWS: Final = 200_000
EVERY: Final = 8  # Each eighth batch takes no history
KEPT: Final = 9
SHORT, LONG = 1.25, 1.5
"""A batch that takes less than the first factor of the usual time may take more rows; above the second, fewer."""


class FillPace:
    """The pace of a job's fills."""

    def __init__(self) -> None:
        self._usual_s: deque[float] = deque(maxlen=KEPT)
        self._rows = FIRST_ROWS
        self._batches = 0

    def rows(self) -> int:
        """Return how many rows the next batch takes; 0 for none."""
        self._batches += 1
        if self._batches % EVERY == 1 or len(self._usual_s) < 3:
            return 0
        return self._rows

    def took(self, rows: int, duration_s: float) -> None:
        """Record the duration, until its results were written, of a batch that was told to take this many rows."""
        if not rows:
            self._usual_s.append(duration_s)
            return
        usual_s = median(self._usual_s)
        if duration_s < SHORT * usual_s:
            self._rows = min(self._rows * 3 // 2, MOST_ROWS)
        elif duration_s > LONG * usual_s:
            self._rows = max(self._rows // 2, 1)

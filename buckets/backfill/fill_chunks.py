"""The history of a fill as files beside the checkpoint: chunks that shards take in one after the other.

    CHECKPOINT/buckets/fills/3/plan.json        what the archive holds that goes in
    CHECKPOINT/buckets/fills/3/000000042.arrow  a chunk: a row a shard, with its events as `fan_out` packs them
    CHECKPOINT/buckets/fills/3/whole.json       how many chunks there are, once all are written

A chunk is written whole or not at all. Tasks read it, each its own row.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from buckets.checkpoint.folders import records_folder
from buckets.checkpoint.list_versions import lists_in
from buckets.checkpoint.numbered_records import NumberedRecords
from buckets.checkpoint.record_files import RecordFiles
from buckets.files import remove_tree
from buckets.lists.lists import Lists
from buckets.rules.fill import Piece

CHUNK_ROWS = 2_000
"""Rows of the archive in a chunk at most."""
_ROWS, _LISTS, _END = b"rows", b"lists", b"end"


@dataclass(frozen=True)
class Chunk:
    """Some history of a group.

    Attributes:
        packed: by shard, the events as `fan_out` packs them.
        rows: how many rows of the archive it stands for.
        end: the number of the arrival in the archive after it.
        lists: by name, the versions of the lists that its events have seen.
    """

    packed: Mapping[int, bytes]
    rows: int
    end: int
    lists: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """What goes into a fill."""

    rows: int
    chunks: int


class FillChunks:
    """The chunks of a fill."""

    def __init__(self, checkpoint: Path, number: int) -> None:
        """Write nothing yet."""
        self.folder, self._records = fills_folder(checkpoint) / str(number), RecordFiles(checkpoint)
        self._chunks = NumberedRecords(self._records, self.folder, ".arrow")

    def plan(self) -> Plan | None:
        """Return what goes in; None while that is not known."""
        return self._records.read_if_there(self.folder / "plan.json", lambda record: Plan(**record))

    def keep_plan(self, plan: Plan) -> None:
        """Write what goes in."""
        self._records.write(self.folder / "plan.json", asdict(plan))

    def ready(self) -> int:
        """Return how many chunks have been written, also those that are gone again. Cost: of a listing."""
        newest = self._chunks.newest()
        return 0 if newest is None else newest + 1

    def total(self) -> int | None:
        """Return how many there are in all; None while that is not known."""
        return self._records.read_if_there(self.folder / "whole.json", lambda record: int(record["chunks"]))

    def end(self) -> int:
        """Return the number of the arrival after the newest chunk; 0 where there is none."""
        ready = self.ready()
        return int(_metadata(self._table(ready - 1))[_END]) if ready else 0

    def write(self, number: int, chunk: Chunk) -> None:
        """Write a chunk."""
        shards = sorted(chunk.packed)
        metadata = {_ROWS: str(chunk.rows), _END: str(chunk.end), _LISTS: json.dumps(dict(chunk.lists), sort_keys=True)}
        columns = [pa.array(shards, pa.int32()), pa.array([chunk.packed[shard] for shard in shards], pa.large_binary())]
        table = pa.table(columns, names=["shard", "packed"]).replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self._records.write_bytes(self._chunks.file(number), sink.getvalue().to_pybytes())

    def finish(self, chunks: int) -> None:
        """Write how many there are: all of them."""
        self._records.write(self.folder / "whole.json", {"chunks": chunks})

    def read(self, number: int, shard: int) -> Piece:
        """Return the part of a chunk that is a shard's."""
        table = self._table(number)
        metadata, at = _metadata(table), pc.index(table["shard"], shard).as_py()
        packed = None if at < 0 else table["packed"][at].as_py()
        return Piece(packed, int(metadata[_ROWS]), metadata[_LISTS].decode())

    def forget(self, until: int) -> None:
        """Remove chunks that every shard has taken in; the newest stays, from which writing goes on."""
        self._chunks.remove(*(number for number in self._chunks.numbers()[:-1] if number < until))

    def remove(self) -> None:
        """Remove all of it."""
        remove_tree(self.folder)

    def _table(self, number: int) -> pa.Table:
        return self._records.map_arrow(self._chunks.file(number))


@dataclass(frozen=True)
class ChunkFeed:
    """What a batch takes of the chunks of a fill, for one shard.

    Attributes:
        chunks: the chunks.
        checkpoint: where the versions of lists are.
        shard: the shard.
        ready: how many chunks there are.
        total: how many there are in all; None while that is not known.
        rows: about how many rows the batch takes.
        lists: as JSON, by name the versions of the lists that the batch sees.
    """

    chunks: FillChunks
    checkpoint: Path
    shard: int
    ready: int
    total: int | None
    rows: int
    lists: str

    def chunk(self, number: int) -> Piece:
        """Return a chunk that is there."""
        return self.chunks.read(number, self.shard)

    def lists_of(self, versions: str) -> Lists:
        """Return lists in their versions."""
        return lists_in(self.checkpoint, json.loads(versions))


def fills_folder(checkpoint: Path) -> Path:
    """Return where the chunks of all fills are."""
    return records_folder(checkpoint) / "fills"


def _metadata(table: pa.Table) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = table.schema.metadata
    return metadata

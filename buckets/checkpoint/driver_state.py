"""The driver's own state, besides that of the shards, as files; and all records of a checkpoint together.

    CHECKPOINT/buckets/driver/000000042.changes   the changes made by batch 42; no file if it changed nothing
    CHECKPOINT/buckets/driver/000000042.whole     the whole state after batch 42

The state can be read as of any batch to which Spark can go back. A file is an Arrow stream that names the previous file
of changes; the record of a batch names its newest one.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from buckets.checkpoint.batch_ends import BatchEnds
from buckets.checkpoint.batch_records import KEPT_BATCHES, BatchRecords
from buckets.checkpoint.job_record import Imports, JobRecord
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.record_files import NumberedRecords, RecordFiles
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.rules.warmth import Warmth, rules_warmth

DriverValues = Mapping[tuple[str, bytes], bytes]  # By the name of a map and a key in it
DriverChanges = Mapping[tuple[str, bytes], bytes | None]  # The same; None where an entry is gone
NOTHING = -1  # The number of the batch before the first
MOST_CHANGES = 100  # After this many files of changes, or when they are larger than the whole state, that is written
SMALL_BYTES = 1 << 16  # Files of changes up to this total size are never too large
_BEFORE = b"before"
_COLUMNS = pa.schema({"map": pa.dictionary(pa.int8(), pa.string()), "key": pa.binary(), "value": pa.binary()})


class DriverState:
    """The files of the driver's state in a checkpoint."""

    def __init__(self, checkpoint: Path, batches: BatchRecords | None = None) -> None:
        """Write nothing yet; `batches` are the records of the checkpoint's latest batches."""
        self._records, self._batches = RecordFiles(checkpoint), batches or BatchRecords(checkpoint)
        folder = self._records.folder / "driver"
        self._changes = NumberedRecords(self._records, folder, ".changes", is_own=True)
        self._whole = NumberedRecords(self._records, folder, ".whole", is_own=True)

    def read(self, batch_id: int) -> dict[tuple[str, bytes], bytes]:
        """Return the state after a batch."""
        entries: dict[tuple[str, bytes], bytes | None] = {}
        base = self._whole.newest(batch_id)
        if base is not None:
            entries.update(self._read(self._whole.file(base))[0])
        last = NOTHING if base is None else base
        for number in (number for number in self._changes.numbers() if last < number <= batch_id):
            changes, before = self._read(self._changes.file(number))
            if before != last:
                raise self._changes.missing(before)
            entries |= changes
            last = number
        record = self._batches.record(batch_id)
        if record is not None and record.driver is not None and last < record.driver:
            raise self._changes.missing(record.driver)
        return {at: value for at, value in entries.items() if value is not None}

    def write(self, batch_id: int, changes: DriverChanges, whole: Callable[[], DriverValues]) -> None:
        """Write a batch's changes; delete those of later batches, and those too old for Spark to go back to."""
        self._remove(lambda number: number >= batch_id)
        if not changes:
            return
        self._write(self._changes, batch_id, changes)
        wholes = self._whole.sizes()
        base = max(wholes, default=NOTHING)
        sizes = [size for number, size in self._changes.sizes().items() if number > base]
        if len(sizes) >= MOST_CHANGES or sum(sizes) > max(wholes.get(base, 0), SMALL_BYTES):
            self._write(self._whole, batch_id, whole())
        # Files older than the oldest whole state that is still needed to read any kept batch.
        oldest = self._whole.newest(batch_id - KEPT_BATCHES)
        if oldest is not None:
            self._remove(lambda number: number < oldest)

    def begin(self, batch_id: int, values: DriverValues) -> None:
        """Replace any state by this one, as of the end of a batch."""
        self._remove(lambda number: True)
        # The next batch's changes refer to the previous file of changes.
        for records in (self._changes, self._whole):
            self._write(records, batch_id, values)

    def _remove(self, is_gone: Callable[[int], bool]) -> None:
        for records in (self._whole, self._changes):
            records.remove(*filter(is_gone, records.numbers()))

    def _write(self, records: NumberedRecords, batch_id: int, entries: DriverChanges) -> None:
        columns = [
            pa.array([name for name, _ in entries], pa.string()).dictionary_encode().cast(_COLUMNS.field("map").type),
            pa.array([key for _, key in entries], pa.binary()),
            pa.array(entries.values(), pa.binary()),
        ]
        schema = _COLUMNS.with_metadata({_BEFORE: str(self.newest(batch_id - 1)).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write(pa.record_batch(columns, schema=schema))
        records.write_bytes(batch_id, sink.getvalue().to_pybytes())

    def _read(self, file: Path) -> tuple[DriverChanges, int]:
        """Return the entries of a file, and the number of the previous file of changes."""
        with self._records.reading(file):
            table = pa.ipc.open_stream(pa.py_buffer(self._records.read_bytes(file))).read_all()
        at = zip(table["map"].to_pylist(), table["key"].to_pylist(), strict=True)
        return dict(zip(at, table["value"].to_pylist(), strict=True)), int(table.schema.metadata[_BEFORE])

    def newest(self, batch_id: int) -> int:
        """Return the number of the newest file of changes up to a batch; `NOTHING` if there is none."""
        number = self._changes.newest(batch_id)
        return NOTHING if number is None else number


class Checkpoint:
    """All records of a checkpoint, for callers that need more than one kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = JobRecord(path)
        self.batches = BatchRecords(path)
        self.versions = RuleVersions(path, self.batches)
        self.cuts = BatchEnds(path, self.batches)
        self.driver = DriverState(path, self.batches)
        self.lists = ListVersions(path, self.batches)
        self.imports = Imports(path)

    def check(self) -> None:
        """Check that the newest records exist and are intact, before anything is done with them."""
        self.versions.latest_rule_set()
        for name in self.batches.latest().lists:
            self.lists.latest(name)
        self.batches.all_terms()
        self.batches.check_beside()
        newest = self.batches.latest_done()[0]
        if newest is not None:
            self.driver.read(newest)  # No file that it needs may be missing


def read_warmth(checkpoint: Path) -> dict[str, Warmth]:
    """Return since when each rule in force is complete, by rule id; empty if no batch has begun.

    Takes no lock, so a job may be running on the checkpoint.
    """
    kept = Checkpoint(checkpoint)
    rule_set = kept.versions.latest_rule_set()
    return {} if rule_set is None else rules_warmth(rule_set, kept.batches.arrived(), epoch_ms())

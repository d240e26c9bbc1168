"""State that the driver keeps besides the shards', as files: what each batch has changed, and now and then all of it.

    CHECKPOINT/buckets/driver/000000042.changes   what batch 42 has changed; no file where it has changed nothing
    CHECKPOINT/buckets/driver/000000042.whole     all of it after batch 42

So the state after any batch to which Spark can go back can be read. A file is a checksum, then an Arrow stream, which
names the file of changes before it; the record of a batch names the newest.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from buckets.checkpoint.batch_records import KEPT_BATCHES, BatchRecords
from buckets.checkpoint.folders import records_folder
from buckets.checkpoint.record_files import MISSING, RecordFiles
from buckets.files import write_whole

Values = Mapping[tuple[str, bytes], bytes]
"""By the name of a map and a key in it."""
Changes = Mapping[tuple[str, bytes], bytes | None]
"""The same; None where an entry is gone."""
NOTHING = -1
"""The number of the batch before the first."""
MOST_CHANGES = 100
"""After so many files of changes all of the state is written, or when they are larger than that."""
SMALL_BYTES = 1 << 16
"""Files of changes that are no larger than this in all are never too large."""
_CHANGES, _WHOLE = ".changes", ".whole"
_CHECKSUM_BYTES = 16
_BEFORE = b"before"
_COLUMNS = pa.schema(
    [
        pa.field("map", pa.dictionary(pa.int8(), pa.string())),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


class DriverState:
    """The files of a checkpoint's driver."""

    def __init__(self, checkpoint: Path) -> None:
        """Look at a checkpoint; nothing is written yet."""
        self._records, self._batches = RecordFiles(checkpoint), BatchRecords(checkpoint)
        self._folder = records_folder(checkpoint) / "driver"

    def read(self, batch_id: int) -> dict[tuple[str, bytes], bytes]:
        """The state after a batch.

        Raises:
            BucketsError: a file is damaged, or one is missing.
        """
        base = max((number for number in self._numbers(_WHOLE) if number <= batch_id), default=NOTHING)
        found: dict[tuple[str, bytes], bytes | None] = {}
        if base != NOTHING:
            found.update(self._read(base, _WHOLE)[0])
        last = base
        for number in (each for each in self._numbers(_CHANGES) if base < each <= batch_id):
            changes, before = self._read(number, _CHANGES)
            if before != last:
                raise self._records.damage(self._file(before, _CHANGES), MISSING)
            found |= changes
            last = number
        record = self._batches.record(batch_id)
        if record is not None and record.driver is not None and last < record.driver:
            raise self._records.damage(self._file(record.driver, _CHANGES), MISSING)
        return {at: value for at, value in found.items() if value is not None}

    def check(self) -> None:
        """See that the state after the newest batch that has run can be read.

        Raises:
            BucketsError: as `read`.
        """
        newest = self._batches.newest_done()
        if newest is not None:
            self.read(newest)

    def write(self, batch_id: int, changes: Changes, whole: Callable[[], Values]) -> None:
        """Write what a batch has changed, and forget what later ones had, and what Spark cannot go back to.

        Args:
            batch_id: the batch.
            changes: what it has changed.
            whole: gives the state after it.
        """
        for suffix in (_WHOLE, _CHANGES):
            for number in self._numbers(suffix):
                if number >= batch_id:
                    self._file(number, suffix).unlink()
        if not changes:
            return
        self._write(batch_id, _CHANGES, changes)
        base = max(self._numbers(_WHOLE), default=NOTHING)
        since = [self._file(number, _CHANGES).stat().st_size for number in self._numbers(_CHANGES) if number > base]
        size = self._file(base, _WHOLE).stat().st_size if base != NOTHING else 0
        if len(since) >= MOST_CHANGES or sum(since) > max(size, SMALL_BYTES):
            self._write(batch_id, _WHOLE, whole())
        self._forget(batch_id - KEPT_BATCHES)

    def begin(self, batch_id: int, values: Values) -> None:
        """Begin with the state after a batch, whatever was there."""
        for suffix in (_WHOLE, _CHANGES):
            for number in self._numbers(suffix):
                self._file(number, suffix).unlink()
        # The changes of the next batch name those of the one before.
        for suffix in (_CHANGES, _WHOLE):
            self._write(batch_id, suffix, values)

    def _forget(self, batch_id: int) -> None:
        """Remove what is older than all of the state that a batch, or any later one, can be read from."""
        base = max((number for number in self._numbers(_WHOLE) if number <= batch_id), default=NOTHING)
        for suffix in (_WHOLE, _CHANGES):
            for number in self._numbers(suffix):
                if number < base:
                    self._file(number, suffix).unlink()

    def _write(self, batch_id: int, suffix: str, entries: Changes) -> None:
        before = self.newest(batch_id - 1)
        columns = [
            pa.array([name for name, _ in entries], pa.string()).dictionary_encode().cast(_COLUMNS.field("map").type),
            pa.array([key for _, key in entries], pa.binary()),
            pa.array(entries.values(), pa.binary()),
        ]
        schema = _COLUMNS.with_metadata({_BEFORE: str(before).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write(pa.record_batch(columns, schema=schema))
        body = sink.getvalue().to_pybytes()
        file = self._file(batch_id, suffix)
        write_whole(file, _checksum(body, file.name) + body)

    def _read(self, batch_id: int, suffix: str) -> tuple[Changes, int]:
        """What a file holds, and the number of the file of changes before it."""
        file = self._file(batch_id, suffix)
        try:
            data = file.read_bytes()
            checksum, body = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
            # Earlier releases left the name of the file out.
            if checksum not in (_checksum(body, file.name), _checksum(body, "")):
                raise self._records.damage(file, "its checksum is another one")
            table = pa.ipc.open_stream(body).read_all()
        except (OSError, pa.ArrowException) as error:
            raise self._records.damage(file, error) from None
        at = zip(table["map"].to_pylist(), table["key"].to_pylist(), strict=True)
        return dict(zip(at, table["value"].to_pylist(), strict=True)), int(table.schema.metadata[_BEFORE])

    def newest(self, batch_id: int) -> int:
        """Return the number of the newest file of changes up to a batch; `NOTHING` where there is none."""
        return max((number for number in self._numbers(_CHANGES) if number <= batch_id), default=NOTHING)

    def _numbers(self, suffix: str) -> list[int]:
        """The batches that have a file of a kind, in order."""
        return sorted(int(file.stem) for file in self._folder.glob(f"[0-9]*{suffix}"))

    def _file(self, batch_id: int, suffix: str) -> Path:
        return self._folder / f"{batch_id:09d}{suffix}"


def _checksum(body: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode() + body, digest_size=_CHECKSUM_BYTES).digest()

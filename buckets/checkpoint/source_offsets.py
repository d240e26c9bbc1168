"""Spark's part of a checkpoint: how far each batch has read its topics, and where its state is.

Offsets are changed when a topic is new or gone.

CHECKPOINT/spark/offsets/17   written when batch 17 is planned: its end, which is the beginning of batch 18
CHECKPOINT/spark/commits/17   written when it has ended
CHECKPOINT/spark/sources/0/0  the beginning of batch 0
CHECKPOINT/state/0/3/shards   the store of partition 3; files that begin with 18 are of the state after batch 17
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from buckets.errors import BucketsError
from buckets.files import write_whole


def records_folder(checkpoint: Path) -> Path:
    """Return the folder of this project's records."""
    return checkpoint / "buckets"


def spark_folder(checkpoint: Path) -> Path:
    """Return the folder of Spark's offsets, commits and state."""
    return checkpoint / "spark"


def state_folder(checkpoint: Path) -> Path:
    """Return the folder of the shards' state stores; Spark keeps the state of a user's other operators elsewhere."""
    return checkpoint / "state"


def lock_file(checkpoint: Path) -> Path:
    """Return the path of the lock: a locked file, or in an object store the record of a lease."""
    return records_folder(checkpoint) / "in_use"


TopicOffsets = dict[str, dict[str, int]]  # By topic and partition, an offset
_FIRST_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class SourceOffsets:
    """The offsets at which the batches of a checkpoint begin and end in its topics."""

    def __init__(self, checkpoint: Path) -> None:
        self._spark, self._state = spark_folder(checkpoint), state_folder(checkpoint)

    @property
    def ended(self) -> int | None:
        """The last batch that has ended; None if none has."""
        return max(self._numbers("commits"), default=None)

    @property
    def unfinished(self) -> int | None:
        """The batch that was planned but has not ended; None if there is none."""
        planned = max(self._numbers("offsets"), default=None)
        return None if planned is None or planned == self.ended else planned

    @property
    def next_batch(self) -> int:
        """The next batch to run: an unfinished one, or a new one."""
        return 0 if self.ended is None else self.ended + 1

    def before(self, batch_id: int) -> TopicOffsets:
        """Return where a batch begins; empty if Spark has not written that yet."""
        if batch_id:
            return self.end(batch_id - 1)
        file = self._begin_file()
        return _read(file)[1] if file.exists() else {}

    def end(self, batch_id: int) -> TopicOffsets:
        """Return where a batch ends."""
        return _read(self._spark / "offsets" / str(batch_id))[1]

    def move(
        self, batch_id: int, offsets: Mapping[str, Mapping[str, int]], without: Collection[str] = frozenset()
    ) -> None:
        """Change where an unplanned batch begins in some topics; others stay."""
        file = self._spark / "offsets" / str(batch_id - 1) if batch_id else self._begin_file()
        if not file.exists():
            return
        head, now = _read(file)
        moved = {topic: dict(by_partition) for topic, by_partition in offsets.items()}
        begins = {topic: at for topic, at in (now | moved).items() if topic not in without}
        self._write(file, head + json.dumps(begins).encode())

    def drop(self, batch_id: int) -> None:
        """Delete an unfinished batch, and any state that its tasks have written."""
        for state in self._state.glob(f"*/[0-9]*/*/{batch_id + 1}.*"):
            state.unlink()
        _checksum_of(self._spark / "offsets" / str(batch_id)).unlink(missing_ok=True)
        (self._spark / "offsets" / str(batch_id)).unlink()

    def finish(self, batch_id: int) -> None:
        """Mark a batch as ended that lacked only this mark."""
        earlier = self._spark / "commits" / str(batch_id - 1)
        commit = earlier.read_bytes() if earlier.exists() else _FIRST_COMMIT
        self._write(self._spark / "commits" / str(batch_id), commit)

    def _begin_file(self) -> Path:
        return self._spark / "sources" / "0" / "0"

    def _numbers(self, folder: str) -> list[int]:
        return [int(file.name) for file in (self._spark / folder).glob("[0-9]*") if file.name.isdecimal()]

    def _write(self, file: Path, content: bytes) -> None:
        # Hadoop's checksum would be that of the old content.
        _checksum_of(file).unlink(missing_ok=True)
        write_whole(file, content)


def _checksum_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _read(file: Path) -> tuple[bytes, TopicOffsets]:
    """Return the header before the offsets in a file, and the offsets."""
    head, separator, last = file.read_bytes().rpartition(b"\n")
    try:
        offsets: TopicOffsets | None = json.loads(last)
    except ValueError:
        offsets = None
    if not separator or not isinstance(offsets, dict):
        message = f"Spark's file of offsets {file} has a form that this release does not know; nothing is changed"
        raise BucketsError(message)
    return head + separator, offsets

"""What a checkpoint was made for (`buckets/job.json`), and the imports of its state (`buckets/imports.json`)."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.identity import CheckpointIdentity, check_release
from buckets.checkpoint.lock import Lock, LostLease, Unwritable, check_free
from buckets.checkpoint.record_files import MISSING, RecordFiles, reader_of
from buckets.checkpoint.source_offsets import lock_file, records_folder
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.files import holds_more_than

_INDENT = 1


@dataclass(frozen=True)
class Import:
    """An import."""

    batch_id: int  # the last batch before it
    made_ms: int  # when it was made, in ms since the epoch
    checkpoint: str  # the path of the source checkpoint
    shards: int  # the number of shards since then
    allowed_lateness_ms: int  # since then


class Imports:
    """The imports of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._records = RecordFiles(checkpoint)
        self._file = self._records.folder / "imports.json"

    def begin(self) -> None:
        """Mark that an import has begun, before any of it is written."""
        self._write([])

    def begun(self) -> bool:
        """Return whether an import has ever begun."""
        return self._file.exists()

    def read(self) -> list[Import]:
        """Return all imports, oldest first."""
        record = self._records.read_if_there(self._file, reader_of(dict[str, list[Import]]))
        return [] if record is None else record["imports"]

    def keep(self, made: Import) -> None:
        """Append an import."""
        self._write([*self.read(), made])

    def _write(self, made: Sequence[Import]) -> None:
        self._records.write(self._file, {"imports": made}, indent=_INDENT)


def job_file(checkpoint: Path) -> Path:
    """Return the path of the record; a checkpoint is complete once this file exists."""
    return records_folder(checkpoint) / "job.json"


class JobRecord:
    """The record of a checkpoint's job; another job must not start from that checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self._records = checkpoint, RecordFiles(checkpoint)
        self._file = job_file(checkpoint)

    def identity(self, basis: CheckpointIdentity) -> str | None:
        """Return the checkpoint's identity, the same at every start; None if there is no checkpoint yet."""
        written = self._found()
        if written is not None:
            conflict = basis.conflict(written)
            if conflict:
                remedy = "go back to that, or name a new checkpoint and a new output folder"
                message = f"checkpoint {self._checkpoint} {conflict}; {remedy}"
                raise BucketsError(message)
            return str(written["id"])
        if holds_more_than(self._checkpoint, self._file, [lock_file(self._checkpoint)]):
            message = (
                f"checkpoint {self._checkpoint} holds something that this program did not write; name a new folder"
            )
            raise BucketsError(message)
        return None

    def carried_over(self, basis: CheckpointIdentity) -> str | None:
        """Describe changes since the last start that do not prevent the job from continuing; None if nothing."""
        written = self._found()
        return None if written is None else basis.carried_over(written)

    def open(self, basis: CheckpointIdentity) -> str:
        """Begin a new checkpoint, or continue one of the same basis; return its identity."""
        identity = self.identity(basis) or uuid.uuid4().hex
        self._write(basis, identity, **self._own())
        return identity

    def _own(self) -> dict[str, Any]:
        """Return what the record has besides basis and identity."""
        written = self._found() or {}
        return {name: written[name] for name in ("life", "partitions") if name in written}

    @property
    def life(self) -> str | None:
        """Which checkpoint it is among those with the same identity; None if it began without an import.

        Imported state keeps its identity, so that results continue in the existing tables. Only the last checkpoint
        that imported it may write to them.
        """
        return self._own().get("life")

    @property
    def partitions(self) -> int:
        """The number of Spark partitions that the shards of a started job are spread over."""
        return int(self.written()["partitions"])

    def spread(self, partitions: int) -> int:
        """Return how many partitions to spread shards over: `partitions` at the first start, then the same number."""
        written = self.written()
        if "partitions" not in written:
            self._records.write(self._file, {**written, "partitions": partitions}, _INDENT)
        return int(written.get("partitions", partitions))

    def check_import_ended(self) -> None:
        """Check that no import into the checkpoint was interrupted; an import writes this record last."""
        if Imports(self._checkpoint).begun() and not self._file.exists():
            message = f"an import into {self._checkpoint} has begun and not ended; remove the folder and import again"
            raise BucketsError(message)

    def begin_imported(self, basis: CheckpointIdentity, identity: str, life: str, partitions: int) -> None:
        """Write the record of a checkpoint with imported state, which completes the checkpoint."""
        self._write(basis, identity, life=life, partitions=partitions)

    def written(self) -> dict[str, Any]:
        """Return the record as the job's last start wrote it."""
        written = self._found()
        if written is None:
            message = (
                f"{self._checkpoint} is not a checkpoint: there is no {self._file.relative_to(self._checkpoint)} in "
                "it; give the folder that the configuration names as `checkpoint`"
            )
            raise BucketsError(message)
        return written

    def event_schema(self) -> EventSchema:
        """Return the event schema of the last start."""
        return EventSchema.model_validate(self.written()["event_schema"])

    def _write(self, basis: CheckpointIdentity, identity: str, **own: Any) -> None:
        record = {**basis.to_json(), "id": identity, **own}
        if not self._file.exists() or self._file.read_bytes() != self._records.sealed(self._file, record, _INDENT):
            self._records.write(self._file, record, _INDENT)

    def known_identity(self) -> str | None:
        """Return the checkpoint's identity, whatever its basis; None if there is no checkpoint yet."""
        written = self._found()
        return None if written is None else str(written["id"])

    def _found(self) -> dict[str, Any] | None:
        """Return the record, which exists from the first start on; otherwise None."""
        if self._file.exists():
            return self._records.read(self._file, self._readable)
        self.check_import_ended()
        if BatchRecords(self._checkpoint).newest() is not None:
            raise self._records.damage(self._file, MISSING)
        return None

    def _readable(self, written: Any) -> dict[str, Any]:
        try:
            check_release(written)
        except BucketsError as error:
            message = (
                f"checkpoint {self._checkpoint} {error.message}; run the release that wrote it, or name a new "
                "checkpoint and a new output folder"
            )
            raise BucketsError(message) from error
        return dict(written)


def lock_for(checkpoint: Path, basis: CheckpointIdentity, on_lost: Callable[[LostLease], None] | None = None) -> Lock:
    """Lock a checkpoint that is new or has this basis, and return the lock; `on_lost` is as for `Lock`.

    A folder that belongs to somebody else is refused before a lock is put into it.
    """
    try:
        JobRecord(checkpoint).identity(basis)
    except BucketsError:
        check_free(checkpoint)
        raise
    except OSError as error:
        raise Unwritable(checkpoint, error) from None
    lock = Lock(checkpoint, on_lost)
    lock.take()
    return lock

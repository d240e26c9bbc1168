"""The rules, lists and terms of each batch, so that a batch that runs again after a crash finds the same.

    CHECKPOINT/buckets/terms/000000017.json    the terms from this batch on, until the next such file
    CHECKPOINT/buckets/batches/000000042.json  the record of a batch, written before it runs and again afterwards

Before a batch runs, its first record and everything that the previous batch wrote there are on disk, including their
names. The second record replaces the first, and its name reaches the disk with the next batch: if the machine fails in
between, Spark's later note that the batch has ended is lost too, and the batch runs again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from buckets.checkpoint.identity import Terms
from buckets.checkpoint.record_files import MISSING, NumberedRecords, RecordFiles, reader_of
from buckets.errors import BucketsError
from buckets.rules.completeness import Filled, Stretches
from buckets.validation import faults_of

_SINGLE = ("topics.json",)
"""Single records whose absence would mean that nothing has been kept yet."""
_BEFORE, _NONE = "before", -1  # In a record of terms, the number of the previous one; `_NONE` in the first
KEPT_BATCHES = 200  # Batch records that are kept; Spark itself can go back 100 batches


class BatchRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a batch that has begun."""

    ruleset_version: int  # the version of the rules that evaluates it
    arrived: Stretches  # the event times that have arrived up to this batch; empty until it has run
    done: bool  # whether it has run
    lists: dict[str, int] = {}  # by name, the version of each list that it sees
    fills: dict[int, Filled] = {}  # by number, the progress of each fill in it; empty until it has run
    # the newest file of changes to the driver's state after it, `driver_state.NOTHING` without one; None
    # until it has run
    driver: int | None = None
    terms: int | None = None  # the number of its terms
    beside: tuple[str, ...] = ()  # single records, such as topics.json, that existed when this was written
    # the greatest `source_order` up to this batch; None for a source without an order across batches
    greatest: int | None = None


NO_BATCH = BatchRecord(0, (), done=False)


class BatchRecords:
    """The records of a checkpoint's latest batches, and the terms of each.

    Records written by this object are not read again: only one process at a time writes to a checkpoint.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self._records = checkpoint, RecordFiles(checkpoint)
        self._batches = NumberedRecords(self._records, self._records.folder / "batches", is_own=True)
        self._terms = NumberedRecords(self._records, self._records.folder / "terms", is_own=True)
        self._terms_read: dict[int, dict[str, Any]] = {}
        self._written: dict[int, BatchRecord] = {}

    def newest(self) -> int | None:
        """Return the newest batch that has begun; None if none has."""
        return self._batches.newest()

    def arrived(self) -> Stretches:
        """Return the event times that have arrived up to the newest batch that has run."""
        return self.latest_done()[1].arrived

    def latest(self) -> BatchRecord:
        """Return the record of the newest batch that has begun; `NO_BATCH` if none has."""
        newest = self.newest()
        return NO_BATCH if newest is None else self.record(newest) or NO_BATCH

    def latest_done(self) -> tuple[int | None, BatchRecord]:
        """Return the newest batch that has run, and its record; None and `NO_BATCH` if none is recorded."""
        for batch_id in reversed(self._batches.numbers()):
            record = self.record(batch_id)
            if record is not None and record.done:
                return batch_id, record
        return None, NO_BATCH

    def record(self, batch_id: int) -> BatchRecord | None:
        """Return the record of a batch; None if it has not begun, or is too old for Spark to rerun."""
        return self._written.get(batch_id) or self._batches.read_if_there(batch_id, reader_of(BatchRecord))

    def before(self, batch_id: int) -> BatchRecord | None:
        """Return the record of the preceding batch; None for the job's first batch."""
        record = self.record(batch_id - 1)
        if record is None and batch_id and self.newest() is not None:
            raise self._batches.missing(batch_id - 1)
        return record

    def done_after(self, batch_id: int) -> Iterator[tuple[int, BatchRecord]]:
        """Yield the recorded batches after this one that have run, oldest first."""
        for number in self._batches.numbers():
            record = self.record(number) if number > batch_id else None
            if record is not None and record.done:
                yield number, record

    def check_beside(self) -> None:
        """Check that all records exist that existed when the newest batch was recorded."""
        for name in self.latest().beside:
            file = self._records.folder / name
            if not file.exists():
                raise self._records.damage(file, MISSING)

    def keep(self, batch_id: int, record: BatchRecord) -> None:
        """Write the record of a batch, and delete those too old for Spark to rerun."""
        beside = tuple(name for name in _SINGLE if (self._records.folder / name).is_file())
        record = msgspec.structs.replace(record, terms=self._terms.newest(batch_id), beside=beside)
        self._batches.write(batch_id, record, is_durable=not record.done)
        self._written = {number: known for number, known in self._written.items() if number == batch_id - 1}
        self._written[batch_id] = record
        self._batches.remove(batch_id - KEPT_BATCHES)

    def oldest_lists(self) -> dict[str, int]:
        """Return the oldest version of each list that any batch record names. Cost: reads all records."""
        oldest: dict[str, int] = {}
        for batch_id in self._batches.numbers():
            record = self.record(batch_id)
            for name, version in () if record is None else record.lists.items():
                oldest[name] = min(version, oldest.get(name, version))
        return oldest

    def terms_for(self, batch_id: int, now: Terms) -> Terms:
        """Return the terms of a batch: those with which it first began, even on a rerun.

        Call this before the batch is recorded: a batch without a record begins with `now`, the terms of this start of
        the job, which are written if they differ from the previous ones.
        """
        number = self._terms.newest(batch_id)
        self._check_terms(number, self.record(batch_id - 1))
        if number is not None and number not in self._terms_read:
            self._terms_read = {number: self._terms.read(number, _read_terms)[0]}
        before = None if number is None else self._terms_read[number]
        if not self._batches.has(batch_id):
            record = now.model_dump(mode="json")
            if json.dumps(record) != json.dumps(before):  # The order of fields is part of them.
                earlier = self._terms.newest(batch_id - 1)
                self._terms.write(batch_id, record | {_BEFORE: _NONE if earlier is None else earlier})
                self._terms_read = {batch_id: record}
            return now
        begun = Terms.model_validate(before)
        conflict = now.conflict(begun)
        if conflict:
            message = (
                f"batch {batch_id} of checkpoint {self._checkpoint} {conflict}, and may be half written; go back to "
                "that until the batch is done, and change it then"
            )
            raise BucketsError(message)
        return begun

    def terms_from(self, batch_id: int) -> Terms:
        """Return the terms in force from a batch on, as its record names them."""
        return Terms.model_validate(self._terms.read(batch_id, _read_terms)[0])

    def all_terms(self) -> dict[int, Terms]:
        """Return all terms ever in force by their first batch, ascending."""
        terms, number = {}, self._terms.newest()
        self._check_terms(number, self.latest())
        while number is not None:
            written, before = self._terms.read(number, _read_terms)
            try:
                terms[number] = Terms.model_validate(written)
            except ValidationError as error:
                fault = faults_of(error)[0][1]
                message = (
                    f"checkpoint {self._checkpoint}: the terms of batch {number:,} are of another release ({fault}); "
                    "go on with the release that wrote them"
                )
                raise BucketsError(message) from None
            number = None if before == _NONE else before
        return dict(sorted(terms.items()))

    def _check_terms(self, number: int | None, record: BatchRecord | None) -> None:
        """Check that the newest terms are not older than those of a batch."""
        if record is not None and record.terms is not None and (number is None or number < record.terms):
            raise self._terms.missing(record.terms)


def _read_terms(written: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return terms as written, and the number of the previous ones."""
    before: int = written.pop(_BEFORE)
    return written, before

"""What scored each batch, kept for good; and the order of arrivals.

    CHECKPOINT/buckets/cuts/000000000.jsonl   a line with a checksum for each of 10,000 written batches

Batch records serve to rerun a batch and are deleted later. An archive must still tell years later which rules and lists
scored an arrival. Lines are written for a hundred batches at a time; until then the batch records hold the same facts.
A crash can leave a partial line; its batch then runs again and gets a complete line.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import NumberedRecords, RecordFiles, reader_of, seal_json, unseal_json
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.errors import BucketsError
from buckets.files import append_whole, write_whole

_PER_FILE = 10_000
_TOGETHER = 100
"""The number of batches whose lines are written at once; a divisor of `_PER_FILE`, less than the records kept."""


class BatchEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """A written batch."""

    batch_id: int  # the batch
    ruleset_version: int  # the version of the rules that scored it
    lists: dict[str, int] = {}  # by name, the version of each list that it saw


class BatchEnds:
    """The ends of a checkpoint's batches."""

    def __init__(self, checkpoint: Path, batches: BatchRecords) -> None:
        """Write nothing yet; `batches` are the records of the checkpoint's latest batches."""
        self._batches = batches
        self._records = RecordFiles(checkpoint)
        self._lines = NumberedRecords(self._records, self._records.folder / "cuts", ".jsonl", is_own=True)
        self._checkpoint = checkpoint

    def keep(self, batch_id: int) -> None:
        """Write the missing lines of recorded batches up to this one, once there are enough of them."""
        file = self._file(batch_id)
        if (batch_id + 1) % _TOGETHER and self._lines.numbers():
            return
        newest = self._lines.newest()
        written = [] if newest is None else _cuts_of(self._lines.file(newest).read_bytes())
        last = max((cut.batch_id for cut in written), default=-1 if newest is None else newest - 1)
        cuts = [cut for cut in self._recorded(min(last, batch_id - 1)) if cut.batch_id <= batch_id]
        if file.exists():
            # The leading line feed terminates a partial line left by a crash.
            append_whole(file, b"\n" + _lines(cuts))
        else:
            write_whole(file, _lines(cuts))
            self._lines.note(batch_id // _PER_FILE * _PER_FILE, 0)

    def read(self) -> list[BatchEnd]:
        """Return all batch ends by number; a batch that was rerun after a crash appears once."""
        by_batch: dict[int, BatchEnd] = {}
        for number in self._lines.numbers():
            by_batch.update({cut.batch_id: cut for cut in _cuts_of(self._lines.file(number).read_bytes())})
        by_batch.update({cut.batch_id: cut for cut in self._recorded(max(by_batch, default=-1))})
        cuts = [by_batch[batch_id] for batch_id in sorted(by_batch)]
        self._check(cuts)
        return cuts

    def _recorded(self, after: int) -> list[BatchEnd]:
        return [
            BatchEnd(batch_id, record.ruleset_version, record.lists)
            for batch_id, record in self._batches.done_after(after)
        ]

    def _check(self, cuts: Sequence[BatchEnd]) -> None:
        """Check that no batch is missing, from the job's first to its last one."""
        if not self._lines.folder.exists():
            return
        if not cuts or cuts[0].batch_id:
            raise self._damage(0 if not cuts else cuts[0].batch_id - 1)
        for before, cut in itertools.pairwise(cuts):
            if cut.batch_id != before.batch_id + 1:
                raise self._damage(before.batch_id + 1)
        if cuts[-1].batch_id < (SourceOffsets(self._checkpoint).ended or 0):
            raise self._damage(cuts[-1].batch_id + 1)

    def _damage(self, batch_id: int) -> BucketsError:
        return self._records.damage(self._file(batch_id), f"the line of batch {batch_id} is missing or damaged")

    def _file(self, batch_id: int) -> Path:
        return self._lines.file(batch_id // _PER_FILE * _PER_FILE)


def _cuts_of(lines: bytes) -> list[BatchEnd]:
    """Parse lines, skipping empty and damaged ones and the remains of a crash."""
    cuts = []
    for line in lines.split(b"\n"):
        with contextlib.suppress(ValueError):
            cuts.append(reader_of(BatchEnd)(unseal_json(line)))
    return cuts


def _lines(cuts: Iterable[BatchEnd]) -> bytes:
    return b"".join(seal_json(cut) + b"\n" for cut in cuts)


OrderRange = tuple[int, int]
"""The least and the greatest order in a batch: values of the arrival column, or times of files in ms."""


class ArrivalOrder:
    """Compares each batch with all earlier ones, including those before a restart."""

    def __init__(
        self, checkpoint: Path, column: str | None, refuse: bool, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Continue from the recorded order; `say` receives each kind of remark once.

        Without an arrival column the order is the time at which files were modified. With `refuse`, a batch that comes
        before an earlier one ends the job.
        """
        self._column, self._refuse = column, refuse
        self._say = say
        self._said: set[str] = set()
        batches = BatchRecords(checkpoint)
        self._batch = batches.latest_done()[0]  # The last batch that ran, with the greatest order before and after it
        self._before, self._greatest = (
            None if self._batch is None else _greatest(batches, self._batch - back) for back in (1, 0)
        )

    def check(self, batch_id: int, span: OrderRange | None) -> None:
        """Check that a batch follows the earlier ones, before any of it is written."""
        earlier = self._earlier(batch_id)
        if span is None or earlier is None or span[0] > earlier:
            return
        column, first = self._column, span[0]
        if first == earlier:
            what = f"rows with the same {column}" if column else "files that were modified at the very same time"
            line = f"{what} ({earlier}) came in two batches; they have no order among them"
        elif column is None:
            line = (
                f"files that are older ({first}) than some that have been read ({earlier}) came after them; their rows "
                "count as having arrived now"
            )
        elif self._refuse:
            message = (
                f"batch {batch_id}: {column} {first} arrives after {earlier} of an earlier batch, so results would "
                f"depend on how the stream is cut; nothing of the batch is committed. Correct the order, or take rows "
                f"as they come with source.out_of_order: take"
            )
            raise BucketsError(message)
        else:
            line = f"{column} {first} arrives after {earlier} of an earlier batch, and is taken as having arrived now"
        kind = line.split()[0]
        if kind not in self._said:
            self._said.add(kind)
            self._say(f"batch {batch_id}: {line}")

    def done(self, batch_id: int, span: OrderRange | None) -> int | None:
        """Return the greatest order up to a written batch, for its record."""
        earlier = self._earlier(batch_id)
        last = [order for order in (earlier, span and span[1]) if order is not None]
        self._batch, self._before, self._greatest = batch_id, earlier, max(last, default=None)
        return self._greatest

    def _earlier(self, batch_id: int) -> int | None:
        """Return the greatest order of the batches before this one, which may be a rerun."""
        return self._before if batch_id == self._batch else self._greatest


def _greatest(batches: BatchRecords, batch_id: int) -> int | None:
    record = batches.record(batch_id)
    return None if record is None else record.greatest

"""The order in which events arrive, where the source has it in its rows or files: across batches as within one.

Rows are sorted inside a micro-batch. Batches come one after the other, so all rows are in order only if each batch
comes after the ones before it. `ArrivalOrder` checks that by the first and the last row of each batch. How far the
order has come is in the records of batches (`Intake.greatest`); earlier releases wrote a file of its own:

    CHECKPOINT/buckets/arrival_order.json
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import RecordFiles
from buckets.errors import BucketsError

OrderRange = tuple[int, int]
"""The least and the greatest order in a batch: values of the arrival column, or times of files in ms."""
_Kept = tuple[int | None, int | None, int | None]


@dataclass(frozen=True)
class Ordering:
    """What gives the order, and what is done when a batch overlaps an earlier one.

    Attributes:
        column: the arrival column; None where the order is the time at which files were modified.
        refuse: whether such a batch ends the job.
    """

    column: str | None
    refuse: bool


class ArrivalOrder:
    """Compares each batch with all that came before it, also before a restart."""

    def __init__(self, checkpoint: Path, ordering: Ordering, say: Callable[[str], None] = lambda line: None) -> None:
        """Go on after what was written; `say` is told what the user should know, each kind of it once.

        Raises:
            BucketsError: what was written is damaged.
        """
        self._ordering = ordering
        self._say = say
        self._said: set[str] = set()
        self._batch, self._before, self._greatest = _kept(checkpoint)

    def check(self, batch_id: int, span: OrderRange | None) -> None:
        """Check that a batch comes after the earlier ones, before anything of it is written.

        Raises:
            BucketsError: it does not, and the settings say that this ends the job.
        """
        earlier = self._earlier(batch_id)
        if span is None or earlier is None or span[0] > earlier:
            return
        column = self._ordering.column
        if span[0] == earlier:
            what = f"rows with the same {column}" if column else "files that were modified at the very same time"
            self._say_once(f"batch {batch_id}: {what} ({earlier}) came in two batches; they have no order among them")
        elif column is None:
            self._say_once(
                f"batch {batch_id}: files that are older ({span[0]}) than some that have been read ({earlier}) came "
                "after them; their rows count as having arrived now"
            )
        elif self._ordering.refuse:
            message = (
                f"batch {batch_id}: {column} {span[0]} arrives after {earlier} of an earlier batch, so results would "
                f"depend on how the stream is cut; nothing of the batch is committed. Mend the order, or take rows "
                f"as they come with source.out_of_order: take"
            )
            raise BucketsError(message)
        else:
            self._say_once(
                f"batch {batch_id}: {column} {span[0]} arrives after {earlier} of an earlier batch, and is taken as "
                "having arrived now"
            )

    def done(self, batch_id: int, span: OrderRange | None) -> int | None:
        """Return how far the order has come once a batch is written, which its record keeps."""
        earlier = self._earlier(batch_id)
        last = [order for order in (earlier, span and span[1]) if order is not None]
        self._batch, self._before, self._greatest = batch_id, earlier, max(last, default=None)
        return self._greatest

    def _earlier(self, batch_id: int) -> int | None:
        """Return the greatest order of the batches before this one, which may have run already."""
        return self._before if batch_id == self._batch else self._greatest

    def _say_once(self, line: str) -> None:
        kind = line.split(":", 1)[1].split("(", 1)[0].split()[0]
        if kind not in self._said:
            self._said.add(kind)
            self._say(line)


def _kept(checkpoint: Path) -> _Kept:
    """Return the newest batch that has run, and the greatest order before it and with it."""
    files, batches = RecordFiles(checkpoint), BatchRecords(checkpoint)
    of_earlier_release = files.read_if_there(files.folder / "arrival_order.json", _read) or (None, None, None)
    newest = batches.newest_done()
    record = None if newest is None else batches.record(newest)
    if newest is None or record is None or record.intake is None:
        return of_earlier_release
    before = batches.record(newest - 1)
    if before is None or before.intake is None:
        return newest, of_earlier_release[2], record.intake.greatest
    return newest, before.intake.greatest, record.intake.greatest


def _read(record: dict[str, int | None]) -> _Kept:
    return record["batch_id"], record["before"], record["greatest"]

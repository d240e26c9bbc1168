"""The order in which events arrive, where the source has it in its rows or files: across batches as within one.

    CHECKPOINT/buckets/arrival_order.json   how far it has come

Rows are sorted inside a micro-batch. Batches come one after the other, so all rows are in order only if each batch
comes after the ones before it. `ArrivalOrder` checks that by the first and the last row of each batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from buckets.checkpoint.record_files import RecordFiles
from buckets.errors import BucketsError

OrderRange = tuple[int, int]
"""The least and the greatest order in a batch: values of the arrival column, or times of files in ms."""


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
        self._records = RecordFiles(checkpoint)
        self._file = self._records.folder / "arrival_order.json"
        self._ordering = ordering
        self._say = say
        self._said: set[str] = set()
        kept = self._records.read_if_there(self._file, _read) or (None, None, None)
        self._batch, self._before, self._greatest = kept

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

    def done(self, batch_id: int, span: OrderRange | None) -> None:
        """Keep how far the order has come, once a batch is written."""
        earlier = self._earlier(batch_id)
        last = [order for order in (earlier, span and span[1]) if order is not None]
        self._batch, self._before, self._greatest = batch_id, earlier, max(last, default=None)
        record = {"batch_id": batch_id, "before": earlier, "greatest": self._greatest}
        self._records.write(self._file, record)

    def _earlier(self, batch_id: int) -> int | None:
        """Return the greatest order of the batches before this one, which may have run already."""
        return self._before if batch_id == self._batch else self._greatest

    def _say_once(self, line: str) -> None:
        kind = line.split(":", 1)[1].split("(", 1)[0].split()[0]
        if kind not in self._said:
            self._said.add(kind)
            self._say(line)


def _read(record: dict[str, int | None]) -> tuple[int | None, int | None, int | None]:
    return record["batch_id"], record["before"], record["greatest"]

"""The order in which events arrive, where the source has it in its rows or files: across batches as within one.

Inside a micro-batch rows are put in order. Batches come one after the other, so all rows are in order only if each
batch lies behind the ones before it. `ArrivalOrder` sees to that, by the first and the last row of each batch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.errors import BucketsError
from buckets.ledger import write_whole

Span = tuple[int, int]
"""The least and the greatest order in a batch: values of the arrival column, or times of files in ms."""
_PER_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def can_order(kind: pa.DataType) -> bool:
    """Whether values of a type have an order that is taken for that of arrival."""
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    return bool(whole or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def orders(column: pa.Array, name: str) -> tuple[pa.Array, pa.Array]:
    """What orders rows, from the column that was named for it.

    Args:
        column: whole numbers, or timestamps or dates (as nanoseconds, so that files of other units compare).
        name: of the column.

    Returns:
        Arrow int64, 0 where there is none; and Arrow string, why there is none, null where there is one.
    """
    kind = column.type
    if not can_order(kind):
        reason = pa.scalar(f"{name}: is of type {kind}, which gives no arrival order")
        return pa.array(np.zeros(len(column), np.int64)), pa.repeat(reason, len(column))
    factor = 1
    if pa.types.is_timestamp(kind):
        factor = _PER_NS[kind.unit]
    elif pa.types.is_date(kind):
        column, factor = column.cast(pa.timestamp("s")), _PER_NS["s"]
    most = np.iinfo(np.int64).max // factor
    if pa.types.is_uint64(kind):
        fits = pc.less_equal(column, pa.scalar(most, kind))
    elif pa.types.is_decimal(kind):
        fits = pa.array([None if number is None else abs(number) <= most for number in column.to_pylist()], pa.bool_())
    else:
        column = column.cast(pa.int64())
        fits = pc.and_(pc.less_equal(column, most), pc.greater_equal(column, -most))
    numbers = pc.cast(pc.if_else(pc.fill_null(fits, False), column, pa.scalar(None, column.type)), pa.int64())
    numbers = numbers.fill_null(0)
    missing = pa.scalar(f"{name}: is missing or null, and gives the arrival order")
    large = pa.scalar(f"{name}: is too large to give the arrival order")
    broken = pc.if_else(column.is_null(), missing, pc.if_else(fits, pa.scalar(None, pa.string()), large))
    return pc.multiply(numbers, factor), broken


@dataclass(frozen=True)
class Ordering:
    """What gives the order, and what is done where a batch lies behind an earlier one.

    Attributes:
        column: the arrival column; None where it is the time at which files were modified.
        refuse: whether such a batch ends the job.
    """

    column: str | None
    refuse: bool


class ArrivalOrder:
    """Compares each batch with all that came before it, also before a restart."""

    def __init__(self, file: Path, ordering: Ordering, say: Callable[[str], None] = lambda line: None) -> None:
        """Go on behind what was written.

        Args:
            file: where the greatest order so far is kept.
            ordering: what gives the order.
            say: told what should be known, each kind of it once.
        """
        self._file = file
        self._ordering = ordering
        self._say = say
        self._said: set[str] = set()
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self._batch: int | None = kept.get("batch_id")
        self._before: int | None = kept.get("before")
        self._greatest: int | None = kept.get("greatest")

    def check(self, batch_id: int, span: Span | None) -> None:
        """See that a batch lies behind the earlier ones; before anything of it is written.

        Raises:
            BucketsError: it does not, and this is to end the job.
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
                "behind them; their rows count as having arrived now"
            )
        elif self._ordering.refuse:
            message = (
                f"batch {batch_id}: {column} {span[0]} arrives behind {earlier} of an earlier batch, so results would "
                f"depend on how the stream is cut; nothing of the batch is committed. Mend the order, or take rows "
                f"as they come with source.out_of_order: take"
            )
            raise BucketsError(message)
        else:
            self._say_once(
                f"batch {batch_id}: {column} {span[0]} arrives behind {earlier} of an earlier batch, and is taken as "
                "having arrived now"
            )

    def done(self, batch_id: int, span: Span | None) -> None:
        """Keep how far the order has come, once a batch is written."""
        earlier = self._earlier(batch_id)
        last = [order for order in (earlier, span and span[1]) if order is not None]
        self._batch, self._before, self._greatest = batch_id, earlier, max(last, default=None)
        record = {"batch_id": batch_id, "before": earlier, "greatest": self._greatest}
        write_whole(self._file, json.dumps(record))

    def _earlier(self, batch_id: int) -> int | None:
        """The greatest order of the batches before this one, which may have run already."""
        return self._before if batch_id == self._batch else self._greatest

    def _say_once(self, line: str) -> None:
        kind = line.split(":", 1)[1].split("(", 1)[0].split()[0]
        if kind not in self._said:
            self._said.add(kind)
            self._say(line)

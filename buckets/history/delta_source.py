"""The rows of a Delta table that a job has read, in the order of its arrival column."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from buckets.checkpoint.cuts import Cut
from buckets.config.settings import SourceSettings
from buckets.errors import BucketsError
from buckets.events.arrivals import BROKEN, POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.events.parquet_rows import plain_values
from buckets.events.schema import EventSchema

_MOST_ROWS = 2_000_000
"""Rows that are read at once, about."""
_ORDER = "__order__"


def delta_arrivals(
    source: SourceSettings, cuts: Sequence[Cut], schemas: Mapping[int, EventSchema]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of batches. A row belongs to the first batch that reaches its order.

    Args:
        source: the table, and the column that orders its rows.
        cuts: the batches.
        schemas: by batch, the event schema.

    Raises:
        BucketsError: batches overlap, so that the order does not say which row was in which.
    """
    rows = _Rows(source)
    low = rows.before(cuts[0].span) if cuts else None
    for cut in cuts:
        if cut.span is None:
            continue
        if low is not None and cut.span[0] < low:
            message = (
                f"events {source.path}: batch {cut.batch_id} begins at {source.arrival} {cut.span[0]}, before the end "
                f"of an earlier batch ({low}), so that nothing says which rows it read; a table that is taken out of "
                "order cannot be archived"
            )
            raise BucketsError(message)
        for piece in rows.between(low, cut.span[1]):
            yield cut.batch_id, _arrivals(piece, schemas[cut.batch_id])
        low = cut.span[1]


class _Rows:
    """The rows of a table by their order."""

    def __init__(self, source: SourceSettings) -> None:
        self._table = QueryBuilder().register("events", DeltaTable(source.path))
        assert source.arrival is not None
        name = '"' + source.arrival.replace('"', '""') + '"'
        kind = pa.schema(DeltaTable(source.path).schema().to_arrow()).field(source.arrival).type
        self._order = _order_sql(name, kind)
        ordered = f"select {self._order} as o from events where {name} is not null order by o"
        self._orders = pa.table(self._table.execute(ordered).read_all())["o"].to_numpy()

    def before(self, span: tuple[int, int] | None) -> int | None:
        """The greatest order before a batch; None where there is none."""
        index = 0 if span is None else int(np.searchsorted(self._orders, span[0]))
        return int(self._orders[index - 1]) if index else None

    def between(self, low: int | None, high: int) -> Iterator[pa.Table]:
        """The rows above one order, up to another, in pieces."""
        first = 0 if low is None else int(np.searchsorted(self._orders, low, "right"))
        end = int(np.searchsorted(self._orders, high, "right"))
        while first < end:
            last = int(self._orders[min(first + _MOST_ROWS, end) - 1])
            after = int(self._orders[first])
            sql = f"select *, {self._order} as {_ORDER} from events where {self._order} between {after} and {last}"
            yield pa.table(self._table.execute(f"{sql} order by {_ORDER}").read_all())
            first = int(np.searchsorted(self._orders, last, "right"))


def _order_sql(name: str, kind: pa.DataType) -> str:
    """The order of rows, as Spark has it: whole numbers, or microseconds."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return f"arrow_cast(arrow_cast({name}, 'Timestamp(Microsecond, Some(\"UTC\"))'), 'Int64')"
    return f"arrow_cast({name}, 'Int64')"


def _arrivals(rows: pa.Table, schema: EventSchema) -> pa.RecordBatch:
    order = rows[_ORDER].combine_chunks()
    columns = {SOURCE: pa.repeat(pa.scalar(""), len(rows)), SOURCE_ORDER: order, POSITION: order}
    columns[BROKEN] = pa.nulls(len(rows), pa.string())
    for index, name in enumerate(schema.field_names):
        there = name in rows.column_names
        values = plain_values(pc.cast(rows[name].combine_chunks(), rows[name].type)) if there else None
        columns[field_column(index)] = pa.nulls(len(rows), pa.string()) if values is None else values
    return pa.record_batch(columns)

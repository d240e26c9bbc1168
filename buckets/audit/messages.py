"""Messages of the source that an audit has kept, as the source delivers them: before their values are read."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from buckets.audit.rows import HEADERS_TYPE
from buckets.audit.tables import OFFSET, PARTITION, PUBLISHED_AT, TIMESTAMP_TYPE
from buckets.delta.query import in_ms, query, quoted_column
from buckets.events.arrivals import INGESTED, POSITION, RAW, SOURCE_ORDER
from buckets.events.message_fields import HEADERS, STAMPED
from buckets.events.schema import KEY

_COLUMNS = {KEY: ["key", "key_bytes"], HEADERS: ["headers"], STAMPED: [TIMESTAMP_TYPE]}


def kept_messages(table: DeltaTable, folder: Path, where: str, beside: Collection[str]) -> pa.Table:
    """Return messages by partition and offset.

    Args:
        table: the audit's table of them.
        folder: where it is, for errors.
        where: the condition, in SQL.
        beside: the columns wanted beside values, as `columns_beside_value` names them.

    Raises:
        BucketsError: the table cannot be read.
    """
    there = {field.name for field in table.schema().fields}
    wanted = [
        PARTITION,
        OFFSET,
        PUBLISHED_AT,
        "value",
        "value_bytes",
        *(each for name in beside for each in _COLUMNS[name]),
    ]
    chosen = ", ".join(quoted_column(name) for name in wanted if name in there)
    sql = f'select {chosen} from rows where {where} order by "{PARTITION}", "{OFFSET}"'
    rows = in_ms(query(table, sql, f"audit {folder}"))
    columns = {
        RAW: _bytes_of(rows, "value"),
        SOURCE_ORDER: rows[PARTITION].cast(pa.int64()),
        POSITION: rows[OFFSET],
        INGESTED: rows[PUBLISHED_AT],
    }
    if KEY in beside:
        columns[KEY] = _bytes_of(rows, "key")
    if HEADERS in beside:
        columns[HEADERS] = rows["headers"].cast(HEADERS_TYPE)
    if STAMPED in beside:  # A table of an earlier release does not say it.
        is_known = TIMESTAMP_TYPE in there
        columns[STAMPED] = rows[TIMESTAMP_TYPE] if is_known else pa.nulls(len(rows), pa.int32())
    return pa.table(columns).combine_chunks()


def _bytes_of(rows: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.coalesce(rows[f"{name}_bytes"], rows[name].cast(pa.binary()))

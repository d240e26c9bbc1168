"""Events written as CSV, one record a line, into columns of text; each file has a header line of its own."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa

from buckets.events.arrivals import BROKEN, RAW, SOURCE, field_column
from buckets.events.csv_lines import read_lines, split_header
from buckets.events.folder_values import with_folder_values
from buckets.events.schema import EventSchema
from buckets.events.text_lines import BYTE_ORDER_MARK


def read_events(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, header: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Read lines of CSV into the declared fields.

    Args:
        batches: the lines of whole files, in their order, as `text_lines` makes them.
        schema: the event schema.
        header: the names of the fields, where the header line is not among the lines.

    Yields:
        The records with the declared fields as columns of text, and `broken` for each line that is no record.
    """
    headers: dict[str, list[str]] = {}
    for rows in batches:
        source = rows.column(SOURCE).to_pylist()
        lines = rows.column(RAW).to_pylist()
        starts = [0, *(row for row in range(1, len(source)) if source[row] != source[row - 1]), len(source)]
        for start, end in pairwise(starts):
            first = start
            if header is None and source[first] not in headers:
                headers[source[first]] = _header(lines[first])
                first += 1
            if first < end:
                names = header if header is not None else headers[source[first]]
                yield _with_fields(rows.slice(first, end - first), lines[first:end], names, schema)


def _header(line: str) -> list[str]:
    """Read the names of a header line; none where it is broken, so that no record of its file fits."""
    try:
        return split_header(line.removeprefix(BYTE_ORDER_MARK))
    except ValueError:
        return []


def _with_fields(rows: pa.RecordBatch, lines: list[str], header: list[str], schema: EventSchema) -> pa.RecordBatch:
    columns = read_lines(lines, header, schema.field_names)
    reasons = [first or then for first, then in zip(rows.column(BROKEN).to_pylist(), columns.broken, strict=True)]
    rows = rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, pa.array(reasons, pa.string()))
    for index, name in enumerate(schema.field_names):
        rows = rows.append_column(field_column(index), pa.array(columns.fields[name], pa.string()))
    return with_folder_values(rows, schema, set(schema.field_names) - set(header))

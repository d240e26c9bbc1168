"""Events written as CSV, one record a line, into columns of text.

The names of the columns stand in the event schema, or in a header line that each file has. A header line that cannot be
read is a dead letter, and so are all records of its file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from buckets.events.arrivals import BROKEN, RAW, SOURCE, field_column
from buckets.events.csv_lines import read_header, read_lines
from buckets.events.csv_numbers import plain_numbers
from buckets.events.folder_values import with_folder_values
from buckets.events.moment_text import Faults
from buckets.events.schema import EventSchema
from buckets.events.text_lines import BYTE_ORDER_MARK

_MARK = 3


@dataclass(frozen=True)
class _Header:
    """The names of the columns of a file, and why they cannot be read; None where they can."""

    names: list[str]
    fault: str | None = None


def read_events(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, header: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Read lines of CSV into the declared fields.

    Args:
        batches: the lines of whole files, in their order, as `text_lines` makes them.
        schema: the event schema.
        header: the names of the fields, where the header line is not among the lines and the schema does not say them.

    Yields:
        The records with the declared fields as columns of text, and `broken` for each line that is no record.
    """
    headers: dict[str, _Header] = {}
    for rows in batches:
        source = rows.column(SOURCE).to_pylist()
        lines = rows.column(RAW).to_pylist()
        starts = [0, *(row for row in range(1, len(source)) if source[row] != source[row - 1]), len(source)]
        for start, end in pairwise(starts):
            first = start
            if source[first] not in headers:
                lines[first] = lines[first].removeprefix(BYTE_ORDER_MARK)
                names = schema.csv.header or header
                found = _Header(list(names)) if names else _header(lines[first], rows.column(BROKEN)[first], schema)
                headers[source[first]] = found
                first += 0 if names or found.fault else 1
            if first < end:
                yield _with_fields(rows.slice(first, end - first), lines[first:end], headers[source[start]], schema)


def _header(line: str, broken: pa.Scalar, schema: EventSchema) -> _Header:
    try:
        if broken.is_valid:
            return _Header([], f"the header line {broken}")
        fault = schema.csv.mark_fault(line[:_MARK].encode(schema.csv.line_encoding))
        return _Header([], f"its file {fault}") if fault else _Header(read_header(line, schema))
    except ValueError as error:
        return _Header([], f"the header line is {error}" if "broken CSV" in str(error) else f"the first line {error}")


def _with_fields(rows: pa.RecordBatch, lines: list[str], header: _Header, schema: EventSchema) -> pa.RecordBatch:
    columns = read_lines(lines, header.names, schema.field_names, schema.csv)
    faults: Faults = {}
    fields = []
    for name in schema.field_names:
        column = pa.array(columns.fields[name], pa.string())
        if name in schema.measures or schema.attributes.get(name) == "long":
            column, faulty = plain_numbers(column, schema.csv)
            faults = {row: f"{name}: {reason}" for row, reason in faulty.items()} | faults
        fields.append(column)
    reasons = [
        undecoded or header.fault or broken or faults.get(row)
        for row, (undecoded, broken) in enumerate(zip(rows.column(BROKEN).to_pylist(), columns.broken, strict=True))
    ]
    rows = rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, pa.array(reasons, pa.string()))
    for index, column in enumerate(fields):
        rows = rows.append_column(field_column(index), column)
    return with_folder_values(rows, schema, set(schema.field_names) - set(header.names))

"""What reads lines of JSON or CSV as events, wherever the lines come from."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from buckets.events.csv_events import read_events as csv_events
from buckets.events.folder_values import with_folder_values
from buckets.events.json_events import read_events as json_events
from buckets.events.schema import EventSchema
from buckets.events.source_files import FileFormat
from buckets.events.text_lines import text_lines


def line_reader(
    kind: FileFormat, schema: EventSchema, header: list[str] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a reader of lines: columns `raw` (bytes), `source`, `source_order`, and `position` where it is known.

    Args:
        kind: json or csv.
        schema: the event schema.
        header: the fields of CSV lines, where the header line is not among them.
    """
    if kind == "csv":
        written = schema.csv
        encoding, name = written.line_encoding, written.encoding_name
        return lambda batches: csv_events(text_lines(batches, encoding, name), schema, header)
    return lambda batches: (
        with_folder_values(json_events(rows, schema), schema, schema.field_names) for rows in text_lines(batches)
    )

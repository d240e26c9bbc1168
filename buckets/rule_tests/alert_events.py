"""An alert that a job has raised, and the events of its window from where the job's events are kept."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckets.audit.tables import TRANSACTIONS
from buckets.audit.writer import kept_messages
from buckets.checkpoint.writer_schemas import RegisteredSchemas, newest_pinned
from buckets.config.job import Job, kept_results
from buckets.config.source import FileSource
from buckets.delta.whole_table import is_table, open_table
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.arrivals import SOURCE, field_column, parse
from buckets.events.event_file import EventFile, file_arrivals, open_event_file
from buckets.events.message_fields import columns_beside_value
from buckets.events.messages import TopicMessages
from buckets.events.schema import EventSchema
from buckets.events.source_files import modified_files
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, full_alert_id, output_rows
from buckets.printable import quoted
from buckets.rule_tests.given_events import EventRow, written_events
from buckets.stores.location import location

_COLUMNS = ["alert_id", "rule_id", "key", "event_id", "window_start", "window_end"]


@dataclass(frozen=True)
class PastAlert:
    """An alert of a job."""

    alert_id: str
    rule_id: str
    key: dict[str, Any]
    event_id: str
    window_start: int
    window_end: int


def past_alert(job: Job, alert_id: str) -> PastAlert:
    """Return an alert from the tables of a job or its audit, by its id or a beginning of it that no other has.

    BucketsError if there is no such alert or several, or there are no tables.
    """
    folder = kept_results(job)
    if folder is None:
        message = (
            "the alerts of this job go to topics, and `audit` keeps no tables of them; name a file with --from-file"
        )
        raise BucketsError(message)
    wanted = Selection({"alert_id": [full_alert_id(folder, alert_id)]})
    for output in ALERT_OUTPUTS:
        for row in output_rows(folder, output, _COLUMNS, wanted):
            return PastAlert(**row)
    message = f"there is no alert {quoted(alert_id)} in {folder}; see the column alert_id of its tables"
    raise BucketsError(message)


def events_of_alert(alert: PastAlert, job: Job, file: Path | None) -> list[EventRow]:
    """Return the events of the key of an alert in its window, in arrival order, up to its own.

    They come from a file or, without one, from the files of the source or the table of its audit. BucketsError if they
    cannot be read, or the alert's own event is not among them.
    """
    origin = str(file) if file is not None else job.settings.source.name
    rows = []
    for arrivals in _arrivals(job, file):
        for row in _in_window(arrivals, alert, job.event_schema):
            rows.append(row)
            if row[job.event_schema.event_id] == alert.event_id:
                return rows
    message = f"event {quoted(alert.event_id)} of the alert is not in {origin}; name a file that has it with --events"
    raise BucketsError(message)


def _arrivals(job: Job, file: Path | None) -> Iterable[pa.RecordBatch]:
    settings, schema = job.settings, job.event_schema
    if file is not None:
        return file_arrivals(open_event_file(file, schema), schema)
    if settings.audit is not None:
        return _of_audit(job, location(settings.audit.path))
    if not isinstance(settings.source, FileSource):
        message = f"the events of {settings.source.name} are not searched; name a file that has them with --events"
        raise BucketsError(message)
    return _of_files(settings.source, schema)


def _of_audit(job: Job, folder: Path) -> list[pa.RecordBatch]:
    path, source, schema = folder / TRANSACTIONS, job.settings.source, job.event_schema
    if not is_table(path):
        message = f"audit {folder} holds nothing yet; run `buckets audit CONF --once` first"
        raise BucketsError(message)
    messages = kept_messages(open_table(path), path, "true", columns_beside_value(schema, source.envelope))
    rows = messages.append_column(SOURCE, pa.repeat(pa.scalar(source.name), len(messages)))
    reader, pinned = TopicMessages(source, RegisteredSchemas(job.checkpoint)), newest_pinned(job)
    return [reader.read(piece, schema, None, pinned) for piece in rows.combine_chunks().to_batches()]


def _of_files(source: FileSource, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    files = modified_files(source.folder, source.subfolders)
    for path, _ in sorted(files, key=lambda file: (file[1] or 0, str(file[0]))):
        try:
            yield from file_arrivals(EventFile(path, source.file_format, folder=source.folder), schema)
        except OSError as error:
            message = f"events {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
            raise BucketsError(message) from None


def _in_window(arrivals: pa.RecordBatch, alert: PastAlert, schema: EventSchema) -> Iterator[EventRow]:
    """Yield the events of a batch with the alert's key in its window; what is no event is passed over."""
    column = arrivals.column(field_column(schema.field_names.index(schema.event_time.field)))
    times_ms, _ = conversion.times_ms(column, schema.event_time)
    inside = (times_ms >= alert.window_start) & (times_ms <= alert.window_end)
    if not np.any(inside):
        return
    events, _ = parse(arrivals.filter(pa.array(inside)), schema, frozenset())
    wanted = {name: value if isinstance(value, bool) else str(value) for name, value in alert.key.items()}
    for row in written_events(events, schema):
        if all(row.get(name) == value for name, value in wanted.items()):
            yield row

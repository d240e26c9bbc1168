"""Events looked up by their ids in the archive of a job."""

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from buckets.archive.archive import ARRIVAL, FAULT
from buckets.archive.archiving import archive_of
from buckets.archive.history import History
from buckets.config.job import Job
from buckets.delta.query import in_ms, is_in, quoted_column
from buckets.verdicts.confirmed import FindEvents


def archived_events(job: Job, is_extended: bool = False) -> FindEvents | None:
    """Return a function that looks for events in the archive of a job; None where the job has none.

    Where an event is missing the archive is extended, unless `is_extended` says that it has been.
    """
    if job.settings.archive is None:
        return None

    def find(event_ids: Collection[str]) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
        events = _look_up(job, event_ids)
        if is_extended or set(event_ids) <= events.keys():
            return events
        History.open(job)
        return _look_up(job, event_ids)

    return find


def _look_up(job: Job, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the events of some ids, each as it came first: its time in ms, and its other fields."""
    archive, schema = archive_of(job), job.event_schema
    if not archive.exists():
        return {}
    fields = schema.other_fields
    there = set(pa.schema(archive.query("select * from archive limit 0").schema).names)
    columns = [schema.event_id, schema.event_time.field, *(name for name in fields if name in there)]
    quoted = ", ".join(quoted_column(name) for name in columns)
    rows = archive.query(
        f"select {quoted} from archive where {is_in(schema.event_id, event_ids)} "
        f"and {quoted_column(FAULT)} is null order by {quoted_column(ARRIVAL)}"
    )
    events: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for row in in_ms(rows).to_pylist():
        others = {name: row[name] for name in fields if row.get(name) is not None}
        events.setdefault(str(row[schema.event_id]), (row[schema.event_time.field], others))
    return events

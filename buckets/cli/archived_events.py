"""Events looked up by their ids in the archive of a job."""

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from buckets.archive.archive import ARRIVAL, FAULT
from buckets.archive.archiving import archive_of
from buckets.archive.history import History
from buckets.config.job import Job
from buckets.delta.column_name import quoted_column
from buckets.verdicts.confirmed import FindEvents


def archived_events(job: Job, is_extended: bool = False) -> FindEvents | None:
    """Return a function that looks for events in the archive of a job; None where the job has none.

    Args:
        job: the job.
        is_extended: whether the archive has been extended; otherwise it is when an event is missing.
    """
    if job.settings.archive is None:
        return None

    def find(event_ids: Collection[str]) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
        found = _look_up(job, event_ids)
        if is_extended or set(event_ids) <= found.keys():
            return found
        History.open(job)
        return _look_up(job, event_ids)

    return find


def _look_up(job: Job, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """The events of some ids, each as it came first: its time in ms, and its other fields."""
    archive, schema = archive_of(job), job.event_schema
    if not archive.exists():
        return {}
    fields = [*schema.attributes, *schema.measures]
    there = set(pa.schema(archive.query("select * from archive limit 0").schema).names)
    columns = [schema.event_id, schema.event_time.field, *(name for name in fields if name in there)]
    quoted = ", ".join(quoted_column(name) for name in columns)
    wanted = ", ".join("'" + event_id.replace("'", "''") + "'" for event_id in event_ids)
    rows = archive.query(
        f"select {quoted} from archive where {quoted_column(schema.event_id)} in ({wanted}) "
        f"and {quoted_column(FAULT)} is null order by {quoted_column(ARRIVAL)}"
    )
    index = rows.schema.get_field_index(schema.event_time.field)
    times_ms = rows.column(index).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for row, time_ms in zip(rows.to_pylist(), times_ms.to_pylist(), strict=True):
        others = {name: row[name] for name in fields if row.get(name) is not None}
        found.setdefault(str(row[schema.event_id]), (time_ms, others))
    return found

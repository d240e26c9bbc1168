"""The history of a job: what it has archived, the records of these batches, and events that are looked up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from buckets.archive.archive import Archive
from buckets.archive.archive_writer import ARCHIVE
from buckets.archive.arrived_rows import ARRIVAL, FAULT
from buckets.archive.recorded_batches import RecordedBatches
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.job import Job
from buckets.delta.whole_table import in_ms, is_in, last_number, quoted_column
from buckets.errors import BucketsError
from buckets.stores.location import location
from buckets.verdicts.confirmed import FindEvents


def archive_of(job: Job) -> Archive:
    """Return the archive of a job."""
    if job.settings.archive is None:
        message = (
            "the configuration has no `archive`, which says where all that has arrived is kept; "
            "add `archive: {path: archive}`"
        )
        raise BucketsError(message)
    return Archive(location(job.settings.archive.path))


@dataclass(frozen=True)
class History:
    """The history of a job, up to some batch."""

    job: Job  # the job
    archive: Archive  # what has arrived
    recorded: RecordedBatches  # the records of the batches that are archived

    @staticmethod
    def open(job: Job) -> "History":
        """Open the history of a job, which may run meanwhile, up to the last batch that is written."""
        archive, checkpoint = archive_of(job), Checkpoint(job.checkpoint)
        recorded = RecordedBatches(job.checkpoint)
        identity = checkpoint.job.known_identity()
        OwnedFolder(archive.folder, "archive.path", checkpoint.job.life).is_of(identity)
        first, last = archive.since() if archive.exists() else None, recorded.cuts[-1].batch_id
        if not archive.exists() or (first is not None and first > last):
            message = (
                f"archive {archive.folder}: holds nothing yet; it begins with the next batch of the job, which has to "
                "be started with this configuration"
            )
            raise BucketsError(message)
        ended, recorded = last_number(archive.table_path, f"{identity}-{ARCHIVE}"), recorded.since(first)
        recorded = recorded if ended is None else recorded.until(ended)
        return History(job, replace(archive, until=last), recorded)


def archived_events(job: Job) -> FindEvents | None:
    """Return a function that looks for events in the archive of a job; None where the job has none."""
    return None if job.settings.archive is None else partial(_look_up, job)


def _look_up(job: Job, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the events of some ids, each as it came first: its time in ms, and its other fields."""
    schema = job.event_schema
    archive = archive_of(job).under(schema.new_names)
    if not archive.exists():
        return {}
    fields, there = schema.other_fields, archive.columns()
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

"""The history of a job: what has arrived, and what each batch of it was scored with."""

from collections.abc import Callable
from dataclasses import dataclass

from buckets.archive.archive import Archive
from buckets.archive.archiving import archive_of, extend_archive
from buckets.archive.recorded_batches import RecordedBatches
from buckets.config.job import Job


@dataclass(frozen=True)
class History:
    """The history of a job, up to some batch."""

    job: Job
    archive: Archive
    recorded: RecordedBatches

    @staticmethod
    def open(job: Job, on_rows: Callable[[int], None] = lambda rows: None) -> "History":
        """Open the history of a job, which may run meanwhile; its archive is extended first.

        Args:
            job: its configuration.
            on_rows: told how many rows have been archived, each time.

        Raises:
            BucketsError: the configuration has no archive, or it cannot be extended.
        """
        archive, recorded = archive_of(job), RecordedBatches(job.checkpoint)
        extend_archive(job, recorded, on_rows)
        return History(job, archive, recorded)

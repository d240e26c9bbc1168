"""The history of a job: what has arrived, and what each batch of it was scored with."""

from collections.abc import Callable
from dataclasses import dataclass

from buckets.archive.archive import Archive
from buckets.archive.archiving import archive_of, extend_archive
from buckets.archive.recorded_batches import RecordedBatches
from buckets.config.job import Job


@dataclass(frozen=True)
class History:
    """The history of a job, up to some batch.

    Attributes:
        job: the job.
        archive: what has arrived.
        recorded: the records of the batches from the first one that is archived.
        obstacle: why the archive goes no further, where the source has not kept what comes next.
    """

    job: Job
    archive: Archive
    recorded: RecordedBatches
    obstacle: str | None = None

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
        obstacle = extend_archive(job, recorded, on_rows)
        return History(job, archive, recorded.since(archive.since()), obstacle)

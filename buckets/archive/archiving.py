"""Extends the archive of a job by what has been scored since."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from buckets.archive.archive import Archive
from buckets.archive.arrival_rows import archived
from buckets.archive.field_names import FieldNames
from buckets.archive.recorded_batches import RecordedBatches
from buckets.archive.sources import BatchRange, lost_batches, source_arrivals
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.owned_folder import OwnedFolder
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.stores.location import location

_ROWS = 1_000_000
"""Rows of one append, about."""


def archive_of(job: Job) -> Archive:
    """Return the archive of a job.

    Raises:
        BucketsError: the configuration names none.
    """
    if job.settings.archive is None:
        message = (
            "the configuration has no `archive`, which says where all that has arrived is kept; "
            "add `archive: {path: archive}`"
        )
        raise BucketsError(message)
    return Archive(location(job.settings.archive.path), FieldNames.of(job.checkpoint))


def extend_archive(job: Job, recorded: RecordedBatches, on_rows: Callable[[int], None]) -> str | None:
    """Archive what has been scored since, as far as the source has it; the job may run meanwhile.

    A new archive begins after the last batch that the source has not kept.

    Args:
        job: the job.
        recorded: its records.
        on_rows: told how many rows have been appended, each time.

    Returns:
        Why the archive goes no further, where the source has not kept what comes next; None where it goes on.

    Raises:
        BucketsError: there is no archive or it belongs to another checkpoint, or the source does not have any more
            what the job has read.
    """
    archive = archive_of(job)
    folder = OwnedFolder(archive.folder, "archive.path")
    identity = Checkpoint(job.checkpoint).job.known_identity()
    folder.is_of(identity)
    assert identity is not None
    begun, skip = _begun(archive)
    batches = _batches_from(recorded, begun)
    lost, since = lost_batches(job, batches, recorded.terms), None
    if lost and not archive.exists():
        since = lost[-1] + 1
        batches, lost = _batches_from(recorded, since), ()
        _check_not_empty(archive, batches)
    folder.take(identity)
    archive.prepare(recorded.terms(recorded.cuts[-1].batch_id).event_schema, _cluster_by(job, recorded), since)
    if lost:
        batches = BatchRange(batches.before, [cut for cut in batches.cuts if cut.batch_id < lost[0]])
    end = archive.end()
    for rows, complete in _chunks(_typed(job, recorded, batches), skip):
        if not archive.append(rows, end, complete):
            break
        end += len(rows)
        on_rows(len(rows))
    return _ends_before(archive, lost[0]) if lost else None


def _check_not_empty(archive: Archive, batches: BatchRange) -> None:
    """See that there is a batch with which an archive can begin.

    Raises:
        BucketsError: there is none yet.
    """
    if not batches.cuts:
        message = (
            f"archive {archive.folder}: cannot begin yet, because {_not_kept('the last batch')}; let it run beside the "
            "job, and the archive begins with the next batch"
        )
        raise BucketsError(message)


def _ends_before(archive: Archive, batch_id: int) -> str:
    """Return why an archive goes no further than a batch, and what to do."""
    reason = _not_kept(f"batch {batch_id}")
    return (
        f"archive {archive.folder}: goes no further, because {reason}; name a new archive.path, which begins after it"
    )


def _not_kept(batch: str) -> str:
    return (
        f"`buckets audit` has not kept all messages that {batch} has read: they were gone by then, or kafka.isolation "
        "was another one"
    )


def _cluster_by(job: Job, recorded: RecordedBatches) -> str | None:
    """Return the field by which files are sorted: that of the configuration, or the first that rules group by."""
    assert job.settings.archive is not None
    if job.settings.archive.cluster_by is not None:
        return job.settings.archive.cluster_by
    groups = recorded.rule_set(recorded.cuts[0].ruleset_version).groups
    return next((field for group in groups for field in group.fields), None)


def _begun(archive: Archive) -> tuple[int | None, int]:
    """Return the first batch that may not be archived as a whole, and how many of its rows are.

    None is the first of the job.
    """
    last, complete = archive.last_batch(), archive.complete_batch()
    if last is None:
        return archive.since(), 0
    return last if complete is None or complete < last[0] else (complete + 1, 0)


def _batches_from(recorded: RecordedBatches, begun: int | None) -> BatchRange:
    """Return the batches from one on; None for the first."""
    cuts = recorded.cuts
    if begun is None:
        return BatchRange(recorded.before, cuts)
    index = next((index for index, cut in enumerate(cuts) if cut.batch_id >= begun), len(cuts))
    return BatchRange(cuts[index - 1] if index else recorded.before, cuts[index:])


def _typed(job: Job, recorded: RecordedBatches, batches: BatchRange) -> Iterator[tuple[int, pa.Table]]:
    """Read batches once more, as rows of the archive."""
    if not batches.cuts:
        return
    schemas = recorded.schemas()
    for batch_id, rows in source_arrivals(job, batches, schemas):
        yield batch_id, archived(rows, schemas[batch_id], batch_id)


def _chunks(tables: Iterator[tuple[int, pa.Table]], skip: int) -> Iterator[tuple[pa.Table, int | None]]:
    """Join tables to about a million rows each, without the first rows, which are archived already.

    With the last one comes the number of the batch that is complete then; with the others None.
    """
    joined: list[pa.Table] = []
    batch_id: int | None = None
    for number, table in tables:
        batch_id = number
        skipped = min(skip, len(table))
        skip -= skipped
        joined.append(table.slice(skipped))
        if sum(map(len, joined)) >= _ROWS:
            yield pa.concat_tables(joined, promote_options="default"), None
            joined = []
    rest = pa.concat_tables(joined, promote_options="default") if joined else pa.table({})
    if len(rest):
        yield rest, batch_id

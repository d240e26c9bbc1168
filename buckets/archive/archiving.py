"""Extends the archive of a job by what has been scored since, and reads events back from it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive import archive
from buckets.archive.archive import ARRIVAL, FAULT, Archive
from buckets.archive.recorded_batches import RecordedBatches
from buckets.archive.sources import BatchRange, lost_batches, source_arrivals
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.job import Job
from buckets.delta.whole_table import in_ms, is_in, quoted_column
from buckets.errors import BucketsError
from buckets.events import arrivals
from buckets.events.arrivals import convert, field_column
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema
from buckets.numbers.wide_sum import MOST_DIGITS, decimals_of
from buckets.stores.location import location
from buckets.verdicts.confirmed import FindEvents

_OWN = {
    arrivals.SOURCE: archive.SOURCE,
    arrivals.SOURCE_ORDER: archive.SOURCE_ORDER,
    arrivals.POSITION: archive.POSITION,
    arrivals.BROKEN: archive.FAULT,
    arrivals.RAW: archive.RAW,
}


def archived(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> pa.Table:
    """Turn arrivals into rows of the archive, without their numbers."""
    return archived_and_rounded(rows, schema, batch_id)[0]


def archived_and_rounded(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> tuple[pa.Table, dict[str, int]]:
    """Turn arrivals into rows of the archive, and say by measure how many values were rounded: it has them so."""
    events, faults = convert(rows, schema, frozenset())
    good = np.ones(len(events), np.bool_)
    good[list(faults)] = False
    bad = pa.array(~good)
    names = rows.schema.names
    written = rows.column(arrivals.RAW).to_pylist() if arrivals.RAW in names and faults else [None] * len(events)
    raw = [arrivals.shortened(text) if row in faults and text else None for row, text in enumerate(written)]
    nulls = pa.nulls(len(events), pa.int64())
    columns = {
        archive.BATCH: pa.array(np.full(len(events), batch_id, np.int64)),
        archive.SOURCE: rows.column(arrivals.SOURCE),
        archive.SOURCE_ORDER: rows.column(arrivals.SOURCE_ORDER),
        archive.POSITION: rows.column(arrivals.POSITION),
        archive.INGESTED: rows.column(arrivals.INGESTED) if arrivals.INGESTED in names else nulls,
        archive.FAULT: pa.array([faults.get(row) for row in range(len(events))], pa.string()),
        archive.RAW: pa.array(raw, pa.string()),
        archive.JUDGED: rows.column(arrivals.JUDGED) if arrivals.JUDGED in names else pa.nulls(len(events), pa.bool_()),
    }
    times = pa.array(events.times_ms * good).cast(pa.timestamp("ms", "UTC")).cast(archive.TIME)
    fields: dict[str, pa.Array] = {schema.event_id: events.event_id, schema.event_time.field: times}
    fields |= events.attributes
    for name, measure in schema.measures.items():
        scaled = events.measures[name]
        whole, valid = scaled.fill_null(0), scaled.is_valid().to_numpy(zero_copy_only=False)
        kind = pa.decimal128(MOST_DIGITS, measure.scale)
        fields[name] = decimals_of(whole.to_numpy(zero_copy_only=False), valid, kind)
    if faults:
        fields = {name: pc.if_else(bad, pa.scalar(None, values.type), values) for name, values in fields.items()}
    return pa.table(columns | fields), events.without(faults).rounded_values


def arrivals_of(rows: pa.Table, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Yield rows of the archive as arrivals in pieces of up to 200,000; a declared field without a column is null."""
    optional = {arrivals.INGESTED: archive.INGESTED, arrivals.JUDGED: archive.JUDGED}
    present = {
        name: own for name, own in optional.items() if own in rows.column_names and rows[own].null_count < len(rows)
    }
    for piece in rows.to_batches(max_chunksize=MOST_ROWS):
        columns = {name: piece.column(own) for name, own in (_OWN | present).items()}
        for index, name in enumerate(schema.field_names):
            there = name in piece.schema.names
            columns[field_column(index)] = piece.column(name) if there else pa.nulls(len(piece), pa.string())
        yield pa.record_batch(columns)


_ROWS = 1_000_000  # Rows of one append, about


def archive_of(job: Job) -> Archive:
    """Return the archive of a job."""
    if job.settings.archive is None:
        message = (
            "the configuration has no `archive`, which says where all that has arrived is kept; "
            "add `archive: {path: archive}`"
        )
        raise BucketsError(message)
    return Archive(location(job.settings.archive.path))


def extend_archive(job: Job, recorded: RecordedBatches, on_rows: Callable[[int], None]) -> str | None:
    """Archive what has been scored since, as far as the source has it; the job may run meanwhile.

    A new archive begins after the last batch that the source has not kept.

    Returns:
        Why the archive goes no further, where the source has not kept what comes next; None where it goes on.
    """
    archive = archive_of(job)
    folder = OwnedFolder(archive.folder, "archive.path")
    identity = Checkpoint(job.checkpoint).job.known_identity()
    folder.is_of(identity)
    assert identity is not None
    last, complete = archive.last_batch(), archive.complete_batch()
    # The first batch that may not be archived as a whole, None for the first of the job, and how many of its rows are.
    begun, skip = (archive.since(), 0) if last is None else last
    if last is not None and complete is not None and complete >= last[0]:
        begun, skip = complete + 1, 0
    batches = _batches_from(recorded, begun)
    lost, since = lost_batches(job, batches, recorded.terms), None
    not_kept = (
        "`buckets audit` has not kept all messages that {} has read: they were gone by then, or kafka.isolation was "
        "another one"
    )
    if lost and not archive.exists():
        since = lost[-1] + 1
        batches, lost = _batches_from(recorded, since), ()
        if not batches.cuts:
            message = (
                f"archive {archive.folder}: cannot begin yet, because {not_kept.format('the last batch')}; let it run "
                "beside the job, and the archive begins with the next batch"
            )
            raise BucketsError(message)
    folder.take(identity)
    archive.prepare(recorded.terms(recorded.cuts[-1].batch_id).event_schema, _cluster_by(job, recorded), since)
    if lost:
        batches = BatchRange(batches.before, [cut for cut in batches.cuts if cut.batch_id < lost[0]])
    schemas, end = recorded.schemas(), archive.end()
    arrived = source_arrivals(job, batches, schemas) if batches.cuts else iter(())
    typed = ((batch_id, archived(rows, schemas[batch_id], batch_id)) for batch_id, rows in arrived)
    for rows, last_whole in _chunks(typed, skip):
        if not archive.append(rows, end, last_whole):
            break
        end += len(rows)
        on_rows(len(rows))
    if not lost:
        return None
    because = not_kept.format(f"batch {lost[0]}")
    remedy = "name a new archive.path, which begins after it"
    return f"archive {archive.folder}: goes no further, because {because}; {remedy}"


def _cluster_by(job: Job, recorded: RecordedBatches) -> str | None:
    """Return the field by which files are sorted: that of the configuration, or the first that rules group by."""
    assert job.settings.archive is not None
    if job.settings.archive.cluster_by is not None:
        return job.settings.archive.cluster_by
    groups = recorded.rule_set(recorded.cuts[0].ruleset_version).groups
    return next((field for group in groups for field in group.fields), None)


def _batches_from(recorded: RecordedBatches, begun: int | None) -> BatchRange:
    """Return the batches from one on; None for the first."""
    cuts = recorded.cuts
    if begun is None:
        return BatchRange(recorded.before, cuts)
    index = next((index for index, cut in enumerate(cuts) if cut.batch_id >= begun), len(cuts))
    return BatchRange(cuts[index - 1] if index else recorded.before, cuts[index:])


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


@dataclass(frozen=True)
class History:
    """The history of a job, up to some batch."""

    job: Job  # the job
    archive: Archive  # what has arrived
    recorded: RecordedBatches  # the records of the batches from the first one that is archived
    obstacle: str | None = None  # why the archive goes no further, where the source has not kept what comes next

    @staticmethod
    def open(job: Job, on_rows: Callable[[int], None] = lambda rows: None) -> "History":
        """Open the history of a job, which may run meanwhile; its archive is extended first."""
        archive, recorded = archive_of(job), RecordedBatches(job.checkpoint)
        obstacle = extend_archive(job, recorded, on_rows)
        return History(job, archive, recorded.since(archive.since()), obstacle)


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

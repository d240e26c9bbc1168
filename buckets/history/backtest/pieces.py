"""What a backtest scores: the archive of a job, or a table of events, in pieces in the order of arrival.

The events of a range depend on earlier ones: by their windows, by cooldowns and resets that go on, and by the clocks of
their keys. So everything from the beginning on is scored, up to the last arrival of the range. `History` begins later:
with the events that windows of the range reach. Then all is the same but for what has no end: whether an alert falls
into a cooldown depends on the alert before it, and so on; the same holds for `reset_on_alert`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import ARRIVAL, OWN_COLUMNS, SOURCE_ORDER, by_batch
from buckets.archive.archiving import History, archived_and_rounded
from buckets.archive.delta_source import open_events
from buckets.checkpoint.basis import Terms
from buckets.delta.whole_table import is_between, moments_ms, open_table
from buckets.errors import BucketsError
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.history.scoring.scoring import ArchivePiece
from buckets.lists.index import NO_LISTS, ListIndex, Lists
from buckets.moment import TimeRange
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class BacktestScoring:
    """By what all pieces are scored.

    Given lists count instead of recorded ones, and events only from `from_ms` on, if that is not None.
    """

    rule_set: RuleSet
    terms: Terms
    lists: Mapping[str, ListIndex]
    from_ms: int | None = None

    @property
    def needed_lists(self) -> frozenset[str]:
        """The lists that rules look into and that are not given."""
        return frozenset().union(*(rule.lists for rule in self.rule_set.rules)).difference(self.lists)

    def piece(self, rows: pa.Table, recorded: Lists = NO_LISTS) -> ArchivePiece:
        """Make a piece of rows of the archive, with the lists as they were, without events that do not count.

        A piece may hold many batches. The engine orders events by `source_order`, which orders those of a batch only:
        in a piece it is the number of the arrival.
        """
        rows = rows.set_column(rows.column_names.index(SOURCE_ORDER), SOURCE_ORDER, rows[ARRIVAL])
        if self.from_ms is not None:
            times_ms = moments_ms(rows[self.terms.event_schema.event_time.field])
            rows = rows.filter(pc.greater_equal(times_ms, self.from_ms))
        return ArchivePiece(rows, self.rule_set, self.terms, {**recorded, **self.lists} if self.lists else recorded)


def archive_pieces(history: History, scoring: BacktestScoring, until_ms: int | None) -> Iterator[ArchivePiece]:
    """Return what has arrived for a job, in pieces, up to the last arrival before an event time, if one is given.

    Raises:
        BucketsError: a rule looks into a list that the job did not have.
    """
    schema, archive = scoring.terms.event_schema, history.archive
    first, end = _arrivals(history, scoring, until_ms)
    there = pa.schema(open_table(archive.table_path).schema().to_arrow()).names
    columns = [name for name in (*OWN_COLUMNS.names, *schema.field_names) if name in there]
    tables = archive.tables(first, end, columns)
    needed = scoring.needed_lists
    if not needed:
        yield from (scoring.piece(_with_fields(rows, schema)) for rows in tables)
        return
    cuts = {cut.batch_id: cut for cut in history.recorded.cuts}
    for batch_id, rows in by_batch(tables):
        check_needed_lists(needed, cuts[batch_id].lists, f"batch {batch_id}")
        yield scoring.piece(_with_fields(rows, schema), history.recorded.lists(cuts[batch_id]))


def check_needed_lists(needed: Iterable[str], known: Collection[str], where: str) -> None:
    """See that lists that rules look into are there.

    Raises:
        BucketsError: one is not.
    """
    missing = sorted(set(needed).difference(known))
    if missing:
        there = ", ".join(sorted(known)) or "none"
        name = missing[0]
        message = f"{where} has no list {name!r}, into which rules look; lists there: {there}; give --list {name}=FILE"
        raise BucketsError(message)


def _arrivals(history: History, scoring: BacktestScoring, until_ms: int | None) -> tuple[int, int | None]:
    """Return the first arrival that counts, and the one after the last; all of them where no time is given."""
    time = scoring.terms.event_schema.event_time.field
    first, end = 0, None

    def arrival(which: str, span: TimeRange) -> int | None:
        (test,) = is_between(time, span)
        rows = history.archive.query(f"select {which}(_arrival) as number from archive where {test}").to_pylist()
        number: int | None = rows[0]["number"]
        return number

    if scoring.from_ms is not None:
        earliest = arrival("min", TimeRange(scoring.from_ms))
        first = history.archive.end() if earliest is None else earliest
    if until_ms is not None:
        latest = arrival("max", TimeRange(until_ms=until_ms))
        end = 0 if latest is None else latest + 1
    return first, end


def _with_fields(rows: pa.Table, schema: EventSchema) -> pa.Table:
    """Give rows a column for each field: one that was declared later is null in what had been archived before."""
    for name in schema.field_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
    return rows


def event_pieces(
    path: Path, arrival: str | None, scoring: BacktestScoring, say: Callable[[str], None]
) -> Iterator[ArchivePiece]:
    """Return events as `open_events` opens them, in pieces; a column orders those of a Delta table, or their time.

    `say` is told at the end what is to be known of the times.

    Raises:
        BucketsError: it cannot be read, or has no events of the schema.
    """
    yield from _numbered(
        open_events(path, scoring.terms.event_schema, arrival, say, scoring.rule_set.named_fields), scoring
    )


def table_pieces(events: pa.Table, scoring: BacktestScoring) -> Iterator[ArchivePiece]:
    """Return the events of a table, in pieces in the order of its rows."""
    return _numbered(table_arrivals(events, scoring.terms.event_schema), scoring)


def _numbered(arrivals: Iterable[pa.RecordBatch], scoring: BacktestScoring) -> Iterator[ArchivePiece]:
    """Make pieces of arrivals that are in no archive."""
    first = 0
    for rows in arrivals:
        numbers = pa.array(np.arange(first, first + len(rows)))
        made, rounded = archived_and_rounded(rows, scoring.terms.event_schema, 0)
        yield replace(scoring.piece(made.append_column(ARRIVAL, numbers)), rounded=rounded)
        first += len(rows)

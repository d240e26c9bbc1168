"""What a backtest scores: the archive of a job, or a table of events, in pieces in the order of arrival.

The events of a range depend on earlier ones: by their windows, by cooldowns and resets that go on, and by the clocks of
their keys. So everything from the beginning on is scored, up to the last arrival of the range. `History` begins later:
with the events that windows of the range reach. Then all is the same but for what has no end: whether an alert falls
into a cooldown depends on the alert before it, and so on; the same holds for `reset_on_alert`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from buckets.archive.archive import ARRIVAL, OWN_COLUMNS, SOURCE_ORDER, by_batch
from buckets.archive.arrived import archived
from buckets.archive.event_table import open_events
from buckets.archive.history import History
from buckets.checkpoint.terms import Terms
from buckets.delta.query import is_between, moments_ms
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.events.table_rows import table_arrivals
from buckets.history.scoring.scoring import Piece
from buckets.lists.index import ListIndex
from buckets.lists.lists import NO_LISTS, Lists
from buckets.moment import TimeRange
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class BacktestScoring:
    """By what all pieces are scored.

    Attributes:
        rule_set: the rules.
        terms: the settings and the event schema.
        lists: lists that are given, and count instead of recorded ones.
        from_ms: from which event time on events count at all; None for any.
    """

    rule_set: RuleSet
    terms: Terms
    lists: Mapping[str, ListIndex]
    from_ms: int | None = None

    @property
    def needed_lists(self) -> frozenset[str]:
        """The lists that rules look into and that are not given."""
        return frozenset().union(*(rule.lists for rule in self.rule_set.rules)).difference(self.lists)

    def piece(self, rows: pa.Table, recorded: Lists = NO_LISTS) -> Piece:
        """Rows as a piece, without events that do not count.

        A piece may hold many batches. The engine orders events by `source_order`, which orders those of a batch only:
        in a piece it is the number of the arrival.

        Args:
            rows: of the archive, with `_arrival`.
            recorded: the lists as they were.
        """
        rows = rows.set_column(rows.column_names.index(SOURCE_ORDER), SOURCE_ORDER, rows[ARRIVAL])
        if self.from_ms is not None:
            times_ms = moments_ms(rows[self.terms.event_schema.event_time.field])
            rows = rows.filter(pc.greater_equal(times_ms, self.from_ms))
        return Piece(rows, self.rule_set, self.terms, {**recorded, **self.lists} if self.lists else recorded)


def archive_pieces(history: History, scoring: BacktestScoring, until_ms: int | None) -> Iterator[Piece]:
    """What has arrived for a job.

    Args:
        history: of the job.
        scoring: by what it is scored.
        until_ms: the first event time after the range; None for none: arrivals after the last one before it are left
            out.

    Raises:
        BucketsError: a rule looks into a list that the job did not have.
    """
    schema, archive = scoring.terms.event_schema, history.archive
    first, end = _arrivals(history, scoring, until_ms)
    there = pa.schema(DeltaTable(archive.table_path).schema().to_arrow()).names
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
    """The first arrival that counts, and the one after the last; all of them where no time is given."""
    time = scoring.terms.event_schema.event_time.field
    first, end = 0, None
    if scoring.from_ms is not None:
        (test,) = is_between(time, TimeRange(scoring.from_ms))
        asked = f"select min(_arrival) as found from archive where {test}"
        found = history.archive.query(asked)["found"][0].as_py()
        first = history.archive.end() if found is None else found
    if until_ms is not None:
        (test,) = is_between(time, TimeRange(until_ms=until_ms))
        asked = f"select max(_arrival) as found from archive where {test}"
        found = history.archive.query(asked)["found"][0].as_py()
        end = 0 if found is None else found + 1
    return first, end


def _with_fields(rows: pa.Table, schema: EventSchema) -> pa.Table:
    """Rows with a column for each field: one that was declared later is null in what had been archived before."""
    for name in schema.field_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
    return rows


def event_pieces(path: Path, arrival: str | None, scoring: BacktestScoring) -> Iterator[Piece]:
    """The events of a file, a folder of files or a Delta table, in the order in which they count.

    Args:
        path: as `open_events` takes it.
        arrival: the column of a Delta table that orders its rows; None for the event time.
        scoring: by what they are scored.

    Raises:
        BucketsError: it cannot be read, or has no events of the schema.
    """
    arrivals = open_events(path, scoring.terms.event_schema, scoring.rule_set.named_fields, arrival)
    yield from _numbered(arrivals, scoring)


def table_pieces(events: pa.Table, scoring: BacktestScoring) -> Iterator[Piece]:
    """The events of a table, in the order of its rows."""
    arrivals = table_arrivals(events, scoring.terms.event_schema, scoring.rule_set.named_fields)
    return _numbered(arrivals, scoring)


def _numbered(arrivals: Iterable[pa.RecordBatch], scoring: BacktestScoring) -> Iterator[Piece]:
    """Arrivals that are in no archive as pieces."""
    first = 0
    for rows in arrivals:
        numbers = pa.array(np.arange(first, first + len(rows)))
        yield scoring.piece(archived(rows, scoring.terms.event_schema, 0).append_column(ARRIVAL, numbers))
        first += len(rows)

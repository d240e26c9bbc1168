"""Features of rules at each event of a table or of an archive, as they were when it arrived, some rows at a time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive import archive
from buckets.archive.archive import by_batch
from buckets.archive.archiving import History, arrivals_of
from buckets.config.engine import EngineSettings
from buckets.engine.results.feature_table import FeatureTable, numbered
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob
from buckets.engine.stages.shard import Scorer
from buckets.engine.stages.warm_up import OutputDecoder
from buckets.events.arrivals import POSITION, SOURCE
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs.columns import DEAD_LETTERS
from buckets.rules.rule_set import RuleSet

_ROWS = 500_000
"""Rows that are scored together, about: the more of them, the less often the timeline of a key is opened."""
Arrivals = Iterable[tuple[Lists, pa.RecordBatch]]
"""Rows in arrival order, with the lists that they see: the same object as long as these are the same."""


def archived_arrivals(history: History, schema: EventSchema) -> Arrivals:
    """Read all that a job has archived; each batch sees the lists that it saw."""
    cuts = {cut.batch_id: cut for cut in history.recorded.cuts}
    lists: Lists = NO_LISTS
    versions: Mapping[str, int] = {}
    for batch_id, rows in by_batch(history.archive.tables(columns=[*archive.OWN_COLUMNS.names, *schema.field_names])):
        cut = cuts.get(batch_id)
        if cut is not None and cut.lists != versions:
            lists, versions = history.recorded.lists(cut), cut.lists
        for piece in arrivals_of(rows, schema):
            yield lists, piece


class FeatureRun:
    """Computes the features of a stretch of events.

    Attributes:
        columns: of its tables.
        arrived: how many events have been scored so far.
        outcomes: how often each outcome has come so far, among the rows that were told.
        bad: the rows that are no events, or could not be evaluated by some rule, so far.
        missing: the wanted ids that have not come so far; None where every arrival is wanted.
    """

    def __init__(
        self, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings, ids: pa.Array | None, flags: bool
    ) -> None:
        """Choose the columns.

        Args:
            rule_set: the rules.
            schema: the event schema.
            engine: the settings that decide results.
            ids: Arrow string, the ids of events that are wanted; None for a row for each arrival.
            flags: whether to say of each feature whether it is exact, and whether it is warm.

        Raises:
            BucketsError: a rule is over alerts, or none is evaluated.
        """
        self._rule_set, self._schema, self._engine, self._ids = rule_set, schema, engine, ids
        self._table = FeatureTable(rule_set, schema, flags)
        self.columns = self._table.columns
        self.arrived, self.outcomes, self.bad = 0, Counter[str](), BadRows()
        self.missing: set[str] | None = None if ids is None else set(ids.to_pylist())

    def tables(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        """Compute the rows, in the order of arrival, in tables of about half a million arrivals.

        Raises:
            BucketsError: a value has more digits than a column has room for, or an event cannot be read.
        """
        job = InMemoryJob(self._scorer(NO_LISTS))
        for lists, arrived in _together(arrivals):
            job.scorer = self._scorer(lists)
            pieces = list(numbered(arrived, self.arrived))
            results = job.score_batch(pieces, self._rule_set)
            rows = self._table.rows(pieces, results.payloads, self._ids)
            self._note_bad(arrived, results)
            self.arrived += sum(map(len, pieces))
            for outcome in rows["outcome"].value_counts().to_pylist():
                self.outcomes[outcome["values"]] += outcome["counts"]
            if self.missing:
                self.missing.difference_update(rows["event_id"].to_pylist())
            yield rows

    def _note_bad(self, arrived: list[pa.RecordBatch], results: BatchResults) -> None:
        """Count what is bad among rows that have been scored, which have been given numbers as positions."""
        self.bad.take(results.account.events_in, results.account.malformed, ())
        self.bad.rounded.update(results.account.facts.rounded)
        decoder = OutputDecoder(self._rule_set, self._schema, self._engine)
        for letters in decoder.tables(DEAD_LETTERS, results.payloads.get(DEAD_LETTERS, [])):
            origins = pa.Table.from_batches([rows.select([SOURCE, POSITION]) for rows in arrived])
            origins = origins.take(pc.subtract(letters["position"], self.arrived))
            columns = (origins[SOURCE], origins[POSITION], letters["reason"])
            self.bad.take(0, 0, zip(*(column.to_pylist() for column in columns), strict=True))

    def _scorer(self, lists: Lists) -> Scorer:
        return Scorer(self._schema, self._engine, evaluations=False, lists=lists, features=True)


def _together(arrivals: Arrivals) -> Iterator[tuple[Lists, list[pa.RecordBatch]]]:
    """Join rows that follow each other and see the same lists, about half a million at once."""
    seen, pieces, size = NO_LISTS, list[pa.RecordBatch](), 0
    for lists, piece in arrivals:
        if pieces and (lists is not seen or size + len(piece) > _ROWS):
            yield seen, pieces
            pieces, size = [], 0
        seen = lists
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield seen, pieces

"""The past of a job for explanations: the archive, the rules and settings of each batch, and the results."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive import arrived_rows
from buckets.archive.archive import Archive
from buckets.archive.arrived_rows import OWN_COLUMNS
from buckets.archive.history import RecordedBatches
from buckets.arrays import Flags, Int64s
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.delta.whole_table import is_between, is_in, moments_ms, quoted_column, sql_text
from buckets.events.schema import EventSchema
from buckets.expressions.expression import THIS
from buckets.lists.index import NO_LISTS, Lists
from buckets.moment import TimeRange
from buckets.numbers.fixed_point import format_scaled
from buckets.numbers.wide_sum import MOST_DIGITS
from buckets.outputs.columns import DEAD_LETTERS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection, output_batches, rows_of
from buckets.rules.completeness import Fill
from buckets.rules.condition import SqlFilter
from buckets.rules.filter import Filter, field_of, filter_lists, matches, with_this
from buckets.rules.group import NO_NAMES, Group
from buckets.rules.rule_set import RuleSet

PLACE = (arrived_rows.SOURCE, arrived_rows.SOURCE_ORDER, arrived_rows.POSITION)


@dataclass(frozen=True)
class Arrivals:
    """Arrivals in their order."""

    schema: EventSchema  # what they are
    # columns of the archive's own, their ids, their times in ms, and their fields, measures as scaled int64
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int64s) -> "Arrivals":
        """Return some of them, in the given order."""
        return Arrivals(self.schema, self.rows.take(pa.array(rows)))

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """Their fields as inputs of filters, and the archive's own columns."""
        return {name: self.rows[name].combine_chunks() for name in self.rows.column_names}

    @cached_property
    def numbers(self) -> Int64s:
        """Their arrival numbers: int64, ascending."""
        return self._int64s(arrived_rows.ARRIVAL)

    @cached_property
    def batches(self) -> Int64s:
        """The batch of each."""
        return self._int64s(arrived_rows.BATCH)

    @cached_property
    def times_ms(self) -> Int64s:
        """The event time of each."""
        return self._int64s(self.schema.event_time.field)

    def _int64s(self, name: str) -> Int64s:
        numbers: Int64s = self.columns[name].to_numpy()
        return numbers

    @property
    def ids(self) -> pa.Array:
        """The id of each."""
        return self.columns[self.schema.event_id]

    @cached_property
    def origins(self) -> list[tuple[str, int, int]]:
        """Source, source order and position of each."""
        return list(zip(*(self.columns[name].to_pylist() for name in PLACE), strict=True))

    def row_of(self, source: str, position: int) -> int:
        """Return the one from a place; the first if none is."""
        return next((row for row, (of, _, at) in enumerate(self.origins) if (of, at) == (source, position)), 0)

    def arrived(self, row: int) -> dict[str, Any]:
        """Return one of them, and how it arrived, as explanations show it."""
        source, _, position = self.origins[row]
        return {
            "event_id": str(self.ids[row].as_py()),
            "time_ms": int(self.times_ms[row]),
            "batch_id": int(self.batches[row]),
            "source": source,
            "position": position,
            "ingested_ms": self.columns[arrived_rows.INGESTED][row].as_py(),
        }

    def shown(self, name: str, row: int) -> Any:
        """Return a field of one of them as in JSON: a measure as decimal text, the time in ms."""
        value = self.columns[name][row].as_py()
        measure = self.schema.measures.get(name)
        return value if measure is None or value is None else format_scaled(value, measure.scale)


def archived_arrivals(rows: pa.Table, schema: EventSchema) -> Arrivals:
    """Read the rows of the archive that are events, in any order; declared fields may be missing."""
    rows = rows.filter(pc.is_null(rows[arrived_rows.FAULT])).sort_by(arrived_rows.ARRIVAL).combine_chunks()
    columns = {name: rows[name] for name in rows.column_names}
    columns[schema.event_time.field] = moments_ms(rows[schema.event_time.field])
    columns |= {name: _scaled(rows[name].combine_chunks()) for name in schema.measures if name in columns}
    return Arrivals(schema, pa.table(columns))


def _scaled(decimals: pa.Array) -> pa.Array:
    """Return decimals that fit 64 bits as integers: the low word of each."""
    words = np.frombuffer(decimals.buffers()[1] or b"", np.int64)[::2]
    scaled = words[decimals.offset : decimals.offset + len(decimals)]
    return pa.array(scaled, mask=decimals.is_null().to_numpy(zero_copy_only=False))


_AT_ONCE = 500  # Ids per query


@dataclass(frozen=True)
class Past:
    """The past of a job."""

    archive: Archive  # what has arrived
    recorded: RecordedBatches  # the cuts, rules and settings of its batches
    folder: Path | None  # the tables of results; None if they go to topics that nobody keeps
    versions: RuleVersions  # the origins of its rules' versions

    @classmethod
    def of(cls, archive: Archive, recorded: RecordedBatches, folder: Path | None, versions: RuleVersions) -> "Past":
        """Return the past of a job, under the field names of its last batch."""
        return cls(archive, recorded, folder, versions).as_of(recorded.cuts[-1].batch_id)

    def as_of(self, batch_id: int) -> "Past":
        """Return the past under the field names of a batch."""
        written = self.recorded.under(NO_NAMES)
        newest, then = (written.terms(each).event_schema for each in (self.recorded.cuts[-1].batch_id, batch_id))
        names = newest.names_in(then)
        if names == self.archive.names:
            return self
        return replace(self, archive=self.archive.under(names), recorded=self.recorded.under(names))

    def spellings(self, name: str) -> list[str]:
        """Return the name of a field here, and its names at other times."""
        return [name, *(other for other, own in self.archive.names.items() if own == name)]

    @property
    def schema(self) -> EventSchema:
        """The event schema of the last batch, under the field names used here."""
        return self.terms(self.recorded.cuts[-1].batch_id).event_schema

    @cached_property
    def cuts(self) -> Mapping[int, BatchEnd]:
        """The batches by number."""
        return {cut.batch_id: cut for cut in self.recorded.cuts}

    def rule_set(self, batch_id: int) -> RuleSet:
        """Return the rules of a batch."""
        return self.recorded.rule_set(self.cuts[batch_id].ruleset_version)

    def terms(self, batch_id: int) -> Terms:
        """Return the terms of a batch."""
        return self.recorded.terms(batch_id)

    def lists(self, batch_id: int) -> Lists:
        """Return the lists as of a batch."""
        return self.recorded.lists(self.cuts[batch_id])

    def first_batch_of(self, version: int) -> int:
        """Return the first batch known to be scored by this or a later version of the rules."""
        cuts = self.recorded.cuts
        index = bisect_left([cut.ruleset_version for cut in cuts], version)
        return cuts[min(index, len(cuts) - 1)].batch_id

    def fill_of(self, group: Group, batch_id: int) -> Fill | None:
        """Return the fill whose timelines a group used in a batch; None if they were the original ones."""
        if not group.timelines:
            return None
        for version in range(self.cuts[batch_id].ruleset_version - 1, 0, -1):
            for fill in self.versions.rule_set(version).fills:
                if fill.timelines == group.timelines:
                    return fill
        return None

    def begun_with(self, fill: Fill) -> int:
        """Return the batch whose rules and settings a fill used for the archive."""
        cuts = self.recorded.cuts
        return cuts[bisect_left([cut.batch_id for cut in cuts], fill.first_batch)].batch_id

    def events(self, schema: EventSchema, tests: Iterable[str], fields: Iterable[str] | None = None) -> Arrivals:
        """Read events of the archive that pass tests in SQL, with some of their other fields; None for all."""
        names = [schema.event_id, schema.event_time.field, *(schema.other_fields if fields is None else fields)]
        return archived_arrivals(self.rows(tests, [*OWN_COLUMNS.names, *names]), schema)

    def rows(self, tests: Iterable[str], names: Iterable[str]) -> pa.Table:
        """Read rows of the archive with some of its columns; fields of later schemas are null."""
        chosen = ", ".join(quoted_column(name) for name in names if name in self._columns)
        return self.archive.query(f"select {chosen} from archive where {' and '.join(tests)}")

    @cached_property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.archive.columns())

    def faults_of(self, text: str) -> list[dict[str, Any]]:
        """Read rows that are not events and contain a text."""
        tests = [f'"{arrived_rows.FAULT}" is not null', f'strpos("{arrived_rows.RAW}", {sql_text(text)}) > 0']
        faults: list[dict[str, Any]] = self.rows(tests, OWN_COLUMNS.names).sort_by(arrived_rows.ARRIVAL).to_pylist()
        return faults

    def came(self, schema: EventSchema, rows: Collection[Row]) -> Iterator[tuple[Row, Arrivals, int]]:
        """Yield rows of outputs whose events are archived, with the event's arrivals and the index of the right one."""
        wanted = sorted({(row["event_id"], row["event_time"]) for row in rows})
        by_name: dict[tuple[str, int], Arrivals] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            ids, times_ms = [event_id for event_id, _ in part], [time_ms for _, time_ms in part]
            span = TimeRange(min(times_ms), max(times_ms) + 1)
            tests = [is_in(schema.event_id, ids), *is_between(schema.event_time.field, span)]
            arrivals = self.events(schema, tests, ())
            found: dict[tuple[str, int], list[int]] = {}
            for at, name in enumerate(zip(arrivals.ids.to_pylist(), arrivals.times_ms.tolist(), strict=True)):
                found.setdefault(name, []).append(at)
            by_name |= {name: arrivals.take(np.array(index)) for name, index in found.items()}
        for row in rows:
            if (row["event_id"], row["event_time"]) in by_name:
                arrivals = by_name[row["event_id"], row["event_time"]]
                yield row, arrivals, arrivals.row_of(row["source"], row["position"])

    def results(self, output: str, wanted: Selection) -> list[Row]:
        """Return rows of an output from the job's tables; empty without such a table."""
        if self.folder is None:
            return []
        table = self.folder / output
        return [row for batch in output_batches(table, None, wanted) for row in rows_of(batch, table)]

    def alert(self, alert_id: str) -> tuple[str, Row] | None:
        """Return an alert by id, and the output that contains it."""
        for output in ALERT_OUTPUTS:
            for row in self.results(output, Selection({"alert_id": [alert_id]})):
                return output, row
        return None

    @cached_property
    def refused(self) -> Mapping[tuple[str, int], str]:
        """Events with which a sum would have exceeded 64 bits, by source and position, with the reason."""
        rows = self.results(DEAD_LETTERS, Selection(tests=["reason like '%would pass 64 bits%'"]))
        return {(row["source"], row["position"]): row["reason"] for row in rows}

    def passing(self, where: Filter, arrivals: Arrivals) -> Flags:
        """Return which arrivals pass a filter, each with the lists of its own batch."""
        passed = np.ones(len(arrivals), np.bool_)
        if not where or not len(arrivals):
            return passed
        if not filter_lists(where):
            mask = matches(where, arrivals.columns, arrivals.schema)
            return passed if mask is None else mask.to_numpy(zero_copy_only=False)
        for batch_id in np.unique(arrivals.batches).tolist():
            rows = np.flatnonzero(arrivals.batches == batch_id)
            mask = matches(where, arrivals.take(rows).columns, arrivals.schema, self.lists(batch_id))
            assert mask is not None
            passed[rows] = mask.to_numpy(zero_copy_only=False)
        return passed

    def passing_beside(self, where: SqlFilter, arrivals: Arrivals, target: int, rows: Int64s) -> Flags:
        """Return which arrivals pass a filter that compares them with another arrival, with that one's lists."""
        names, schema = list(dict.fromkeys(where.expression.fields())), with_this(arrivals.schema)
        taken = {name: np.full(len(rows), target) if name.startswith(THIS) else rows for name in names}
        columns = {name: arrivals.columns[field_of(name)].take(pa.array(at)) for name, at in taken.items()}
        columns[schema.event_time.field] = pa.array(np.full(len(rows), arrivals.times_ms[target]))
        mask = matches(where, columns, schema, self.lists(int(arrivals.batches[target])) if where.lists else NO_LISTS)
        assert mask is not None
        passed: Flags = mask.to_numpy(zero_copy_only=False)
        return passed


def is_value(schema: EventSchema, field: str, value: str | int | bool) -> str:
    """Return an SQL test that a field of the archive equals a value; for a measure, a scaled integer."""
    measure = schema.measures.get(field)
    if measure is not None:  # a plain number would be a float, in which amounts are not exact
        text = format_scaled(int(value), measure.scale)
        return f"{quoted_column(field)} = arrow_cast('{text}', 'Decimal128({MOST_DIGITS}, {measure.scale})')"
    return is_in(field, [value])

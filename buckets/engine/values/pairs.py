"""Features that look at each event of a window: they filter the events that the kernel lists, and aggregate them.

For each event the kernel lists the events of its window that count on their own, with all columns of the timeline. The
part of a filter that compares them with the event itself is applied here, on columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.component import (
    COUNT,
    COUNT_DISTINCT,
    DECAYED,
    ENTROPY,
    FIRST,
    FIRST_TIME,
    MAX,
    MIN,
    PREVIOUS,
    PREVIOUS_TIME,
    RANK,
    SUM,
    WORD,
    Computed,
    fitted,
    in_words,
)
from buckets.aggregates.each_event import entropies, weights
from buckets.arrays import Flags, Int64s
from buckets.engine.batch.fan_out import KeyedTable
from buckets.expressions.expression import THIS
from buckets.kernel.listed_pairs import OWN, TIME, VALUES
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import Scored
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.condition import SqlFilter
from buckets.rules.feature import Part, Track, field_kind
from buckets.rules.filter import field_of, matches, window_fields, with_this
from buckets.timeline.inspection import texts_at

_AT_ONCE = 1_000_000  # So many pairs are filtered together


class ListedPairs:
    """The listed window events of the events of a group."""

    def __init__(self, plan: GroupPlan, table: KeyedTable, scored: Scored) -> None:
        """Begin without filtering anything."""
        self._table, self._scored = table, scored
        self._columns = plan.group.measures
        self._passing: dict[Any, tuple[Int64s, Int64s]] = {}
        self._beyond = np.empty(0, np.bool_)

    def compute(self, part: Part, rows: Rows) -> tuple[Computed, Flags]:
        """Compute a part at its rows; also return where a sum passes 64 bits, bool `(rows,)`, and is 0 for that."""
        self._beyond = np.zeros(len(rows.event), np.bool_)
        return self._computed(part, rows), self._beyond

    def _computed(self, part: Part, rows: Rows) -> Computed:
        key = part.paired, part.counted, part.window, part.on_trial
        if key not in self._passing:
            self._passing[key] = self._pass(part.paired, rows)
        row, at = self._passing[key]
        size = len(rows.event)
        if part.column is not None:
            least, greatest = self._values(part.column, at)
            row, at = row[least <= greatest], at[least <= greatest]
        if part.operation in (PREVIOUS, PREVIOUS_TIME):
            is_other = self._scored.pairs[at + OWN] == 0
            row, at = row[is_other], at[is_other]
        events = np.bincount(row, minlength=size)
        if part.operation == RANK:
            return self._ranks(part, row, at, size)
        if part.operation == DECAYED:
            return self._decayed(part, rows, row, at, events)
        whole = self._operate(part, row, at, events)
        if part.operation in (FIRST, FIRST_TIME, PREVIOUS, PREVIOUS_TIME):
            events = np.minimum(events, 1)
        return Computed.known(whole, np.zeros(size, np.int32), events)

    def _decayed(self, part: Part, rows: Rows, row: Int64s, at: Int64s, events: Int64s) -> Computed:
        """Sum the values weighted by their age."""
        ages_ms = self._table.times_ms(rows.event)[row] - self._scored.pairs[at + TIME]
        values = 1 if part.column is None else self._values(part.column, at)[0]
        found = np.zeros(len(events), object)
        begin = np.flatnonzero(np.diff(row, prepend=-1))
        if len(row):
            weighted = weights(ages_ms, part.parameter).astype(object) * values
            found[row[begin]] = np.add.reduceat(weighted, begin)
        try:
            return Computed.known(*in_words(found), events)
        except OverflowError:
            return Computed.known(*in_words(self._within(found, WORD)), events)

    def _ranks(self, part: Part, row: Int64s, at: Int64s, size: int) -> Computed:
        """Return the rank of each event's own value by frequency among the other events, from 1; 0 if it has none."""
        is_own = self._scored.pairs[at + OWN] == 1
        different, which = np.unique(self._both_values(part, row, at), axis=0, return_inverse=True)
        times = np.bincount(which[~is_own], minlength=len(different))
        own = np.zeros(size, np.int64)
        own[row[is_own]] = times[which[is_own]]
        is_above = times > own[different[:, 0]]
        rank = np.bincount(different[is_above, 0], minlength=size) + 1
        has_own = np.bincount(row[is_own], minlength=size) > 0
        events = np.bincount(row, minlength=size)
        return Computed.known(np.where(has_own, rank, 0), np.zeros(size, np.int32), events)

    def _values(self, track: Track, at: Int64s) -> tuple[Int64s, Int64s]:
        """Return least and greatest value of single events: equal, or least above greatest for an event without one."""
        first = at + VALUES + 2 * self._columns.index(track.name)
        return self._scored.pairs[first], self._scored.pairs[first + 1]

    def _both_values(self, part: Part, row: Int64s, at: Int64s) -> Int64s:
        """Return each pair's event and its values in both columns, int64 `(pairs, 3)`."""
        assert part.column is not None
        assert part.second is not None
        return np.stack([row, self._values(part.column, at)[0], self._values(part.second, at)[0]], axis=1)

    def _pass(self, where: SqlFilter | None, rows: Rows) -> tuple[Int64s, Int64s]:
        """Return the pairs that pass the filter, if any, sorted by row and then by time.

        Each is given by the index of its row and its offset in the list, int64 `(pairs,)`.
        """
        size, stride = rows.event_count, VALUES + 2 * len(self._columns)
        row = np.repeat(np.arange(len(size)), size)
        at = rows.whole[row] + (np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)) * stride
        if where is None:
            return row, at
        schema, lists = with_this(self._table.schema), self._table.lists
        own = [field_of(name) for name in dict.fromkeys(where.expression.fields()) if name.startswith(THIS)]
        time = schema.event_time.field
        of_events = self._table.fields([*own, time], rows.event)
        passed = np.zeros(len(row), np.bool_)
        for begin in range(0, len(row), _AT_ONCE):
            here = slice(begin, begin + _AT_ONCE)
            taken = pa.array(row[here])
            columns = {THIS + name: of_events[name].take(taken) for name in own} | {time: of_events[time].take(taken)}
            columns |= {name: self._field(name, at[here]) for name in window_fields(where)}
            mask = matches(where, columns, schema, lists)
            assert mask is not None
            passed[here] = mask.to_numpy(zero_copy_only=False)
        return row[passed], at[passed]

    def _field(self, name: str, at: Int64s) -> pa.Array:
        """Return a field of listed events as filters read it."""
        least, greatest = self._values(Track("value", name), at)
        is_null, kind = least > greatest, field_kind(name, self._table.schema)
        if kind == "string":
            return pa.array(texts_at(self._scored.pool, np.where(is_null, 0, least)), pa.string(), mask=is_null)
        return pa.array(least == 1 if kind == "boolean" else least, mask=is_null)

    def _operate(self, part: Part, row: Int64s, at: Int64s, events: Int64s) -> Any:
        """Compute an operation over the pairs of each row, whose numbers are `events`; 0 without pairs."""
        operation, size = part.operation, len(events)
        if operation == COUNT:
            return events
        values = self._scored.pairs[at + TIME] if part.column is None else self._values(part.column, at)[0]
        if operation == SUM:
            return self._sums(row, values, size)
        if operation == COUNT_DISTINCT:
            return np.bincount(np.unique(self._both_values(part, row, at), axis=0)[:, 0], minlength=size)
        if operation == ENTROPY:
            different, times = np.unique(self._both_values(part, row, at), axis=0, return_counts=True)
            return entropies(different[:, 0], times, events)
        found = np.zeros(size, np.int64)
        if operation in (MIN, MAX):
            found[events > 0] = INT64_MAX if operation == MIN else INT64_MIN
            (np.minimum if operation == MIN else np.maximum).at(found, row, values)
            return found
        if operation in (FIRST, FIRST_TIME):
            different, first = np.unique(row, return_index=True)
            found[different] = values[first]
            return found
        found[row] = values  # the last one stays
        return found

    def _sums(self, row: Int64s, values: Int64s, size: int) -> Int64s:
        """Sum values exactly by row."""
        high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(high, row, values >> 32)
        np.add.at(low, row, values & 0xFFFFFFFF)
        sums = fitted(high.astype(object) * 2**32 + low)
        return sums if sums.dtype != object else self._within(sums).astype(np.int64)

    def _within(self, numbers: npt.NDArray[Any], word: int = 1) -> npt.NDArray[Any]:
        """Replace numbers that pass 64 bits in units of `word` by 0, and note them."""
        fits = [INT64_MIN <= number // word <= INT64_MAX for number in numbers.tolist()]
        self._beyond |= ~np.array(fits, np.bool_)
        return np.where(self._beyond, 0, numbers)

"""The newest rows of Delta tables, page by page, without reading the others.

Rows are ordered by timestamp, then by id; a page begins after the last row of the previous one, so its cost does not
depend on how far back it is.

1. The log gives the range of timestamps in each file.
2. Files are read from the latest range on, only the columns that order and filter rows, until no other file can hold a
   row newer than the last one of a full page.
3. The other columns are read from the files that contain chosen rows.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from buckets.delta.commits import is_understood
from buckets.delta.whole_table import files_in, is_table, open_table, readable
from buckets.errors import BucketsError
from buckets.moment import ANY_TIME, TimeRange

_ALWAYS_US = (1 << 63) - 1
_TIME = pa.timestamp("us", "UTC")
_FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")  # Spark may write ns, whose range ends in 2262


@dataclass(frozen=True, order=True)
class RowPlace:
    """A row's place in the order: its timestamp in us since the epoch, then its id."""

    time_us: int
    row_id: str


@dataclass(frozen=True)
class Order:
    """The columns that order rows: a timestamp and an id."""

    moment: str
    row_id: str


@dataclass(frozen=True)
class RowFilter:
    """Which rows are wanted."""

    before: RowPlace | None = None  # only rows older than this one; None: from the newest on
    times: TimeRange = ANY_TIME  # the range of timestamps
    columns: tuple[str, ...] = ()  # the columns that `test` needs
    # given rows with these columns, returns which are wanted, as booleans; None: all
    test: Callable[[pa.Table], pa.Array | pa.ChunkedArray] | None = None


@dataclass(frozen=True)
class PageOfRows:
    """A page."""

    rows: list[tuple[Path, pa.Table]]  # the newest first, each with its table, as a table of one row
    after: RowPlace | None  # where the next page begins; None if nothing is older
    looked_at: int  # the number of rows searched


def newest_rows(
    tables: Sequence[Path], columns: Collection[str], order: Order, wanted: RowFilter, most: int, most_looked_at: int
) -> PageOfRows:
    """Read a page of up to `most` rows. Cost: the files with its rows, and those searched for them.

    A missing table has no rows, and a missing column is null. The page ends after about `most_looked_at` searched rows,
    full or not.
    """
    files = [file for path in tables if is_table(path) for file in _Source(path, order, wanted).files()]
    found = dict[RowPlace, _File]()  # The newest wanted rows; a row that was written twice appears once
    looked_at, after = 0, None
    for file in sorted(files, key=lambda file: file.to_us, reverse=True):
        if len(found) > most and min(found).time_us > file.to_us:
            break
        rest = RowPlace(file.to_us + 1, "")
        if looked_at >= most_looked_at and (wanted.before is None or rest < wanted.before):
            # Unread files may hold other rows of this time or before, so the next page begins there. A page that began
            # there too reads on, or no page would ever get further.
            after = rest
            found = {place: there for place, there in found.items() if place >= rest}
            break
        newer, seen = file.look(most + 1)
        looked_at += seen
        found |= dict.fromkeys(newer, file)
        found = {place: found[place] for place in sorted(found, reverse=True)[: most + 1]}
    if len(found) > most:
        found.popitem()
        after = min(found)
    rows = dict[RowPlace, pa.Table]()
    for file in dict.fromkeys(found.values()):
        rows |= file.read(columns, [place for place, there in found.items() if there is file])
    return PageOfRows([(file.source.path, rows[place]) for place, file in found.items()], after, looked_at)


class _Source:
    """A table, and its files that may hold wanted rows."""

    def __init__(self, path: Path, order: Order, wanted: RowFilter) -> None:
        self.path, self.order, self.wanted = path, order, wanted
        with readable(self.named):
            self.table = open_table(path)
        if not is_understood(self.table):
            message = f"{self.named}: has features of Delta that pages cannot read; list it with `buckets alerts`"
            raise BucketsError(message)

    @property
    def named(self) -> str:
        return f"results {self.path}"

    @cached_property
    def columns(self) -> pa.Schema:
        """All columns of the table that are stored in its files."""
        apart = self.table.metadata().partition_columns
        return pa.schema(field for field in pa.schema(self.table.schema().to_arrow()) if field.name not in apart)

    @cached_property
    def asked(self) -> ds.Expression:
        """The filter for wanted rows by timestamp and id."""
        at, row_id, before = ds.field(self.order.moment), ds.field(self.order.row_id), self.wanted.before
        from_ms, until_ms = self.wanted.times
        asked = at.is_valid()
        if from_ms is not None:
            asked &= at >= pa.scalar(from_ms * 1000, _TIME)
        if until_ms is not None:
            asked &= at < pa.scalar(until_ms * 1000, _TIME)
        if before is not None:
            then = pa.scalar(before.time_us, _TIME)
            asked &= (at < then) | ((at == then) & (row_id < before.row_id))
        return asked

    def files(self) -> Iterator["_File"]:
        """Yield the files that may hold wanted rows."""
        actions = files_in(self.table)
        names = [f"{end}.{self.order.moment}" for end in ("min", "max")]
        known = [actions[name] if name in actions.column_names else pa.nulls(len(actions)) for name in names]
        ends = [moments.cast(_TIME).cast(pa.int64()).to_pylist() for moments in known]
        for name, least, last in zip(actions["path"].to_pylist(), *ends, strict=True):
            # The log has milliseconds, and some writers truncate to them.
            greatest = _ALWAYS_US if last is None else last + 999
            if self.may_hold(least, greatest):
                # Its name may be percent-encoded.
                path = self.path / name
                yield _File(self, path if path.exists() else self.path / unquote(name), greatest)

    def may_hold(self, least_us: int | None, greatest_us: int) -> bool:
        """Return whether rows between two timestamps may be wanted; a least timestamp of None is unknown."""
        from_ms, until_ms = self.wanted.times
        before = self.wanted.before
        return not (
            (least_us is not None and before is not None and least_us > before.time_us)
            or (least_us is not None and until_ms is not None and least_us >= until_ms * 1000)
            or (from_ms is not None and greatest_us < from_ms * 1000)
        )


@dataclass(frozen=True)
class _File:
    """A file of a table; `to_us` is its greatest timestamp, or a later one."""

    source: _Source
    path: Path
    to_us: int

    def look(self, most: int) -> tuple[list[RowPlace], int]:
        """Return the newest wanted rows, at least `most` if there are as many, and the number of rows searched."""
        order, wanted = self.source.order, self.source.wanted
        rows = self._rows((order.moment, order.row_id, *wanted.columns), self.source.asked)
        chosen = rows if wanted.test is None else rows.filter(wanted.test(rows))
        times = chosen[order.moment].cast(_TIME).cast(pa.int64()).to_numpy()
        if len(chosen) > most:
            newest = np.flatnonzero(times >= np.partition(times, -most)[-most])
            chosen, times = chosen.take(newest), times[newest]
        return list(map(RowPlace, times.tolist(), chosen[order.row_id].to_pylist())), len(rows)

    def read(self, columns: Collection[str], places: Sequence[RowPlace]) -> dict[RowPlace, pa.Table]:
        """Return the given columns of rows, each as a table of one row."""
        moment, row_id = self.source.order.moment, self.source.order.row_id
        times, ids = pa.array([place.time_us for place in places], _TIME), [place.row_id for place in places]
        rows = self._rows((moment, row_id, *columns), ds.field(moment).isin(times) & ds.field(row_id).isin(ids))
        found = map(RowPlace, rows[moment].cast(pa.int64()).to_pylist(), rows[row_id].to_pylist())
        return {place: rows.select(list(columns)).slice(row, 1) for row, place in enumerate(found)}

    def _rows(self, columns: Collection[str], asked: ds.Expression) -> pa.Table:
        """Read columns of rows that match a filter, with the table's types; columns that the file lacks are null."""
        known = {field.name: field for field in self.source.columns}
        kinds = pa.schema([known.get(name, pa.field(name, pa.null())) for name in dict.fromkeys(columns)])
        with readable(self.source.named), self.path.open("rb") as file:
            return _FORMAT.make_fragment(file).to_table(kinds, filter=asked)

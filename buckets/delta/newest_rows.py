"""The newest rows of Delta tables, page by page, without reading the others.

Rows are ordered by a moment, and by an id where that is equal; a page begins after the last row of the one before, so
it costs the same however far back it lies. A table is read in pieces, the row groups of its files:

1. The log says of each file, and the file of each of its pieces, between which moments its rows lie.
2. The piece that reaches furthest towards the beginning of the page is read, and of it only the columns that order and
   choose rows, until no other piece can hold a row that is newer than the last one of a full page.
3. The other columns are read of the pieces in which chosen rows lie.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from buckets.delta.commits import is_understood, with_columns
from buckets.delta.whole_table import files_in, inside, is_table, open_table, readable
from buckets.errors import BucketsError
from buckets.moment import ANY_TIME, TimeRange
from buckets.stores.location import as_input

_ALWAYS_US = (1 << 63) - 1
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, order=True)
class RowPlace:
    """Where a row stands in the order: its moment in us since the epoch, then its id."""

    time_us: int
    row_id: str


@dataclass(frozen=True)
class Order:
    """By which columns rows are ordered: a moment, and an id."""

    moment: str
    row_id: str


@dataclass(frozen=True)
class RowFilter:
    """Which rows are wanted."""

    before: RowPlace | None = None  # only rows that are older than this one; None from the newest on
    times: TimeRange = ANY_TIME  # the moments that rows may have
    columns: tuple[str, ...] = ()  # those that `test` looks at
    # says of rows with these columns which are wanted, as booleans; None of all
    test: Callable[[pa.Table], pa.Array | pa.ChunkedArray] | None = None


@dataclass(frozen=True)
class PageOfRows:
    """A page."""

    rows: list[tuple[Path, pa.Table]]  # the newest first, each with its table, as a table of one row
    after: RowPlace | None  # where the next page begins; None where there is nothing older
    looked_at: int  # how many rows were looked at


def newest_rows(
    tables: Sequence[Path], columns: Collection[str], order: Order, wanted: RowFilter, most: int, most_looked_at: int
) -> PageOfRows:
    """Read a page of up to `most` rows. Cost: of the pieces that hold its rows, and of those looked through for them.

    A table that is not there has no rows, and a column that it lacks is null. After about `most_looked_at` rows the
    page ends, full or not.
    """
    number, waiting = count(), list[tuple[int, int, _Piece | Callable[[], Iterator[_Piece]]]]()

    def add(to_us: int, there: _Piece | Callable[[], Iterator[_Piece]]) -> None:
        # Those that reach furthest come first; files are opened when it is their turn.
        heapq.heappush(waiting, (-to_us, next(number), there))

    for source in [_Source(path, order, wanted) for path in tables if is_table(path)]:
        for path, to_us in source.files():
            add(to_us, partial(source.pieces, path, to_us))
    found: list[_Found] = []
    looked_at, after = 0, None
    while waiting:
        to_us = -waiting[0][0]
        if len(found) > most and found[most].place.time_us > to_us:
            break
        rest = RowPlace(to_us + 1, "")
        if looked_at >= most_looked_at and (wanted.before is None or rest < wanted.before):
            # Others of this moment or before may lie in pieces that are not read; the next page begins there. Where
            # this one began there too, it goes on to look, or nobody would ever come further.
            after = rest
            found = [each for each in found if each.place >= after]
            break
        _, _, there = heapq.heappop(waiting)
        if not isinstance(there, _Piece):
            for piece in there():
                add(piece.to_us, piece)
            continue
        newer, rows = there.look(most + 1)
        looked_at += rows
        by_place = {each.place: each for each in (*found, *newer)}  # a row that was written twice is one
        found = [by_place[place] for place in sorted(by_place, reverse=True)[: most + 1]]
    if len(found) > most:
        found = found[:most]
        after = found[-1].place
    return PageOfRows(_read(found, columns), after, looked_at)


@dataclass(frozen=True)
class _Found:
    """A row that is wanted, and where it lies."""

    place: RowPlace
    piece: "_Piece"
    row: int


def _read(found: Sequence[_Found], columns: Collection[str]) -> list[tuple[Path, pa.Table]]:
    """Read the rows that were found, each as a table of one row, in their order; each piece is read once."""
    rows: dict[int, tuple[Path, pa.Table]] = {}
    for piece in dict.fromkeys(each.piece for each in found):
        inside = [at for at, each in enumerate(found) if each.piece == piece]
        read = piece.read(columns).take([found[at].row for at in inside])
        rows |= {at: (piece.source.path, read.slice(index, 1)) for index, at in enumerate(inside)}
    return [rows[at] for at in range(len(found))]


class _Source:
    """A table, and which of its files may hold wanted rows."""

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
        """All columns of the table that its files have."""
        apart = self.table.metadata().partition_columns
        return pa.schema(field for field in pa.schema(self.table.schema().to_arrow()) if field.name not in apart)

    def files(self) -> Iterator[tuple[Path, int]]:
        """Yield the files that may hold wanted rows, each with its greatest moment, or a later one."""
        actions = files_in(self.table)
        names = [f"{end}.{self.order.moment}" for end in ("min", "max")]
        known = [actions[name] if name in actions.column_names else pa.nulls(len(actions)) for name in names]
        ends = [moments.cast(_TIME).cast(pa.int64()).to_pylist() for moments in known]
        for name, least, last in zip(actions["path"].to_pylist(), *ends, strict=True):
            # The log has milliseconds, and some writers cut off what is beyond them.
            greatest = _ALWAYS_US if last is None else last + 999
            if self.may_hold(least, greatest):
                # Its name may be written as in an address.
                path = self.path / name
                yield path if path.exists() else self.path / unquote(name), greatest

    def pieces(self, path: Path, to_us: int) -> Iterator["_Piece"]:
        """Yield the row groups of a file that may hold wanted rows."""
        with readable(self.named):
            file = pq.ParquetFile(as_input(path))
        for group in range(file.num_row_groups):
            least_us, greatest_us = _ends_us(file, group, self.order.moment)
            if self.may_hold(least_us, greatest_us):
                yield _Piece(self, file, group, to_us if greatest_us is None else greatest_us)

    def may_hold(self, least_us: int | None, greatest_us: int | None) -> bool:
        """Return whether rows between two moments may be wanted; None of one that is not known."""
        from_ms, until_ms = self.wanted.times
        before = self.wanted.before
        return not (
            (least_us is not None and before is not None and least_us > before.time_us)
            or (least_us is not None and until_ms is not None and least_us >= until_ms * 1000)
            or (greatest_us is not None and from_ms is not None and greatest_us < from_ms * 1000)
        )


@dataclass(frozen=True)
class _Piece:
    """A row group of a file; `to_us` is its greatest moment, or a later one."""

    source: _Source
    file: pq.ParquetFile
    group: int
    to_us: int

    def look(self, most: int) -> tuple[list[_Found], int]:
        """Return the newest of the rows that are wanted, at least so many if there are, and how many it has."""
        order, wanted = self.source.order, self.source.wanted
        rows = self.read((order.moment, order.row_id, *wanted.columns))
        times_us = rows[order.moment].cast(_TIME).cast(pa.int64())
        is_wanted = np.asarray(pc.fill_null(inside(pc.divide(times_us, 1000), wanted.times), False))
        if wanted.test is not None:
            is_wanted &= np.asarray(pc.fill_null(wanted.test(rows), False))
        times = np.asarray(pc.fill_null(times_us, 0))
        ids = rows[order.row_id]
        if wanted.before is not None:
            of_then = times == wanted.before.time_us
            is_wanted &= times <= wanted.before.time_us
            is_wanted &= ~of_then | np.asarray(pc.fill_null(pc.less(ids, wanted.before.row_id), False))
        chosen = np.flatnonzero(is_wanted)
        if len(chosen) > most:
            chosen = chosen[times[chosen] >= np.partition(times[chosen], -most)[-most]]
        places = map(RowPlace, times[chosen].tolist(), ids.take(pa.array(chosen)).to_pylist())
        return [_Found(place, self, row) for place, row in zip(places, chosen.tolist(), strict=True)], len(rows)

    def read(self, columns: Collection[str]) -> pa.Table:
        """Read columns of all of its rows, in the types of the table; what the file lacks is null."""
        there = self.file.schema_arrow.names
        known = {field.name: field for field in self.source.columns}
        with readable(self.source.named):
            rows = self.file.read_row_group(self.group, [name for name in dict.fromkeys(columns) if name in there])
            return with_columns(rows, pa.schema([known.get(name, pa.field(name, pa.null())) for name in columns]))


def _ends_us(file: pq.ParquetFile, group: int, name: str) -> tuple[int | None, int | None]:
    """Return the least and the greatest moment of a row group; None where the file does not say them."""
    columns = file.metadata.row_group(group)
    column = next(columns.column(at) for at in range(columns.num_columns) if columns.column(at).path_in_schema == name)
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return None, None
    least, greatest = (round(moment.timestamp() * 1_000_000) for moment in (statistics.min, statistics.max))
    return least, greatest

"""The newest rows of tables, page by page: as a sort of all of them has it, however they lie in files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from buckets.delta.newest_rows import Order, RowFilter, RowPlace, newest_rows
from buckets.errors import BucketsError
from buckets.moment import TimeRange

COLUMNS = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.string()), ("rule", pa.string())])
ORDER = Order("at", "id")
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30).map(str), st.sampled_from("ab")), max_size=8)


def write(folder: Path, files) -> Path:
    for file in files:
        rows = [{"at": at, "id": row_id, "rule": rule} for at, row_id, rule in file]
        write_deltalake(folder, pa.Table.from_pylist(rows, COLUMNS), mode="append")
    return folder


def pages(tables, wanted: RowFilter, most: int, most_looked_at: int):
    while True:
        page = newest_rows(tables, ("at", "id", "rule", "gone"), ORDER, wanted, most, most_looked_at)
        yield [row.to_pylist()[0] for _, row in page.rows]
        if page.after is None:
            return
        wanted = RowFilter(page.after, wanted.times, wanted.columns, wanted.test)


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
@given(
    tables=st.lists(st.lists(ROWS.filter(len), min_size=1, max_size=3), min_size=1, max_size=2),
    most=st.sampled_from([2, 5]),
    most_looked_at=st.sampled_from([1, 10, 1_000]),
    rule=st.sampled_from([None, "a"]),
)
def test_pages_together_are_all_rows_newest_first(tmp_path_factory, tables, most, most_looked_at, rule):
    folder = tmp_path_factory.mktemp("tables")
    paths = [write(folder / str(number), files) for number, files in enumerate(tables)]
    wanted = (
        RowFilter() if rule is None else RowFilter(columns=("rule",), test=lambda rows: pc.equal(rows["rule"], rule))
    )
    found = [(row["at"].microsecond, row["id"]) for page in pages(paths, wanted, most, most_looked_at) for row in page]
    every = {(at, row_id) for files in tables for file in files for at, row_id, of in file if rule in (None, of)}
    assert set(found) == every if rule is None else set(found) >= every
    assert found == sorted(set(found), reverse=True)


def test_only_files_of_the_page_are_opened(tmp_path):
    table = write(tmp_path / "t", [[(second * 1_000_000 + n, f"{n}", "a") for n in range(10)] for second in range(20)])
    names = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    newest = max(names["max.at"].to_pylist())
    for name, last in zip(names["path"].to_pylist(), names["max.at"].to_pylist(), strict=True):
        if last != newest:
            (table / name).unlink()
    page = newest_rows([table], ("id",), ORDER, RowFilter(), 9, 1_000)
    assert [row["id"][0].as_py() for _, row in page.rows] == [str(n) for n in range(9, 0, -1)]
    assert page.looked_at == 10
    with pytest.raises(BucketsError, match="cannot be read"):
        newest_rows([table], ("id",), ORDER, RowFilter(), 11, 1_000)


def test_times_and_places_bound_what_is_read(tmp_path):
    table = write(tmp_path / "t", [[(n * 1_000, f"{n}", "a")] for n in range(10)])

    def ids(wanted: RowFilter) -> list[str]:
        return [row["id"][0].as_py() for _, row in newest_rows([table], ("id",), ORDER, wanted, 100, 1_000).rows]

    assert ids(RowFilter(times=TimeRange(3, 6))) == ["5", "4", "3"]
    assert ids(RowFilter(RowPlace(2_000, "2"))) == ["1", "0"]
    assert ids(RowFilter(RowPlace(2_000, "3"))) == ["2", "1", "0"]


def test_a_table_that_is_not_there_has_no_rows(tmp_path):
    page = newest_rows([tmp_path / "none"], ("id",), ORDER, RowFilter(), 5, 5)
    assert (page.rows, page.after, page.looked_at) == ([], None, 0)

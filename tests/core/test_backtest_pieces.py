"""What a backtest scores: archives of jobs with their lists, and tables of events of every kind."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.archive.delta_source import open_events
from buckets.archive.history import History
from buckets.errors import BucketsError
from buckets.events.parquet_rows import table_arrivals
from buckets.history import scoring
from buckets.history.backtest.backtest import archive_pieces, event_pieces
from buckets.lists.list_file import load_list
from tests.core.archived_job import ArchivedJob
from tests.core.backtests import ENGINE, SCHEMA, alerts, backtest, payments, rule
from tests.core.test_backtest import in_order, rows_of
from tests.core.test_shard import cut
from tests.laws import examples
from tests.strategies import cuts

RULES = [rule("sums"), rule("counts", 1), rule("features", 3)]
ROWS = [
    {"id": f"e{index:02}", "t": 1_700_000_000_000 + index * 4, "payer": f"p{index % 2}", "card": "c", "amount": "2.50"}
    for index in range(20)
]


def pieces_of(history, asked):
    """All pieces of an archive."""
    pieces = archive_pieces(history, asked)
    return [pieces.read(number) for number in range(len(pieces))]


def opened_pieces(path, arrival, asked):
    """The events of a file or a table, in the order of a column."""
    return event_pieces(open_events(path, SCHEMA, arrival, print), asked)


def archived_job(folder, rows, positions: Sequence[int] = ()) -> tuple[ArchivedJob, History]:
    job = ArchivedJob(folder, SCHEMA, **ENGINE)
    job.take(RULES)
    for batch in cut([{name: row[name] for name in row if name != "position"} for row in rows], positions):
        job.batch(batch)
    return job, History(None, job.archive, job.recorded)  # type: ignore[arg-type] - nothing asks for the configuration


@settings(max_examples=examples(6))
@given(payments(), cuts(), st.integers(0, 49), st.integers(1, 30), st.sampled_from([1, 3, 500_000]))
def test_a_backtest_of_an_archive_raises_the_live_alerts_of_every_range(
    tmp_path_factory, rows, positions, at, longer, joined
):
    rows = [*ROWS, *rows]
    job, history = archived_job(tmp_path_factory.mktemp("job"), rows, positions)
    begin = rows[at % len(rows)]["t"]
    end = begin + longer
    live = [row for row in job.pipeline.output("alerts") if begin <= row["event_time"] < end]
    for history_ms in (None, 50 + longer):
        asked = backtest(RULES, span=(begin, end), history_ms=history_ms)
        with mock.patch.object(scoring, "JOINED_ROWS", joined):
            report = asked.run(pieces_of(history, asked))
            tables = alerts(pieces_of(history, asked))
        found = [row for row in rows_of(tables) if begin <= row["event_time"] < end]
        assert in_order(found) == in_order(live)
        assert report.total.alerts == len(live)


@settings(max_examples=examples(6))
@given(payments(), st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_a_piece_of_many_batches_is_scored_in_the_order_of_their_arrival(tmp_path_factory, rows, positions):
    rows = [*ROWS, *rows]
    job = ArchivedJob(tmp_path_factory.mktemp("job"), SCHEMA, **ENGINE)
    job.take(RULES)
    for number, batch in enumerate(cut(rows, positions)):
        # Files that are older than those that were read before them.
        job.batch([row | {"source_order": -number, "position": at} for at, row in enumerate(batch)])
    asked = backtest(RULES)
    piece = asked.piece(pa.concat_tables(job.archive.tables()), asked.settings)
    assert in_order(rows_of(alerts([piece]))) == in_order(job.pipeline.output("alerts"))


def test_arrivals_after_the_last_one_of_the_range_are_not_read(tmp_path):
    _, history = archived_job(tmp_path, ROWS, [5, 10])
    end = ROWS[12]["t"]
    asked = backtest(RULES, span=(None, end))
    assert sum(len(piece.rows) for piece in pieces_of(history, asked)) == 12
    late = [*ROWS, {**ROWS[3], "id": "late"}]
    _, history = archived_job(tmp_path / "late", late, [5, 10])
    assert sum(len(piece.rows) for piece in pieces_of(history, asked)) == 21


def test_a_rule_that_looks_into_a_list_needs_it(tmp_path, as_worded):
    _, history = archived_job(tmp_path, ROWS)
    listed = rule("listed", where="(payer, card) IN LIST known")
    asked = backtest([listed])
    with pytest.raises(BucketsError, check=as_worded):
        asked.run(pieces_of(history, asked))
    (tmp_path / "known.csv").write_text("key1,key2\np1,c\n")
    given_list = backtest([listed])
    object.__setattr__(given_list, "lists", {"known": load_list(tmp_path / "known.csv")})
    report = given_list.run(pieces_of(history, given_list))
    assert {each.key for each in report.rules[0].keys} == {'{"payer": "p1"}'}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "delta", "table"])
def test_events_of_every_kind_raise_the_same(tmp_path, kind):
    table = pa.Table.from_pylist(ROWS)
    asked = backtest(RULES)
    path = tmp_path / f"events.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "jsonl":
        path.write_text(table.to_pandas().to_json(orient="records", lines=True))
    elif kind == "delta":
        write_deltalake(path, table.take(pa.array(range(19, -1, -1))))
    pieces = opened_pieces(path, None, asked) if kind != "table" else event_pieces(table_arrivals(table, SCHEMA), asked)
    report = asked.run(pieces)
    assert (report.arrivals, report.total.alerts, report.total.events) == (20, 54, 18)


def test_in_python_a_backtest_is_one_call(as_worded):
    table, fraud = pa.Table.from_pylist(ROWS), {"e05": Decimal("99")}
    begin = datetime.fromtimestamp(ROWS[5]["t"] / 1000, UTC)
    report = buckets.backtest(table, RULES, SCHEMA, begin=begin, fraud=fraud, sweeps=["sums.limit=0,100"])
    assert (report.arrivals, report.total.events, report.total.fraud.saved_amount) == (15, 15, Decimal("99"))
    assert [each.figures.alerts for each in report.variants] == [15, 0]
    with pytest.raises(BucketsError, check=as_worded):
        buckets.backtest(table, [rule("r", where="payer IN LIST known")], SCHEMA)


@pytest.mark.parametrize("given", [(ROWS, RULES, SCHEMA), (None, RULES[0], SCHEMA), (None, RULES, {"event_id": "id"})])
def test_a_backtest_of_something_of_another_kind_is_refused_in_one_line(given, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        buckets.backtest(*given)


def test_a_delta_table_is_read_in_the_order_of_a_column(tmp_path, as_worded):
    table = pa.Table.from_pylist(ROWS).append_column("offset", pa.array(range(20, 0, -1)))
    write_deltalake(tmp_path / "events", table)
    asked = backtest([rule("sums")])
    by_time = asked.run(opened_pieces(tmp_path / "events", None, asked)).total.alerts
    backwards = asked.run(opened_pieces(tmp_path / "events", "offset", asked)).total.alerts
    assert by_time > backwards  # nearly all of them are late then
    with pytest.raises(BucketsError, check=as_worded):
        asked.run(opened_pieces(tmp_path / "events", "nothing", asked))
    with pytest.raises(BucketsError, check=as_worded):
        asked.run(opened_pieces(tmp_path / "events.csv", "offset", asked))


@pytest.mark.parametrize("files", [(0,), (1,), (0, 1)])
def test_a_table_is_read_whole_where_files_have_no_statistics(tmp_path, files):
    for number in range(2):
        write_deltalake(tmp_path, pa.Table.from_pylist(ROWS[10 * number : 10 * number + 10]), mode="append")
    for number in files:
        commit = tmp_path / "_delta_log" / f"{number:020d}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        commit.write_text("\n".join(map(json.dumps, actions)))
    found = list(open_events(tmp_path, SCHEMA, "t", print))
    assert sum(len(each) for each in found) == len(ROWS)

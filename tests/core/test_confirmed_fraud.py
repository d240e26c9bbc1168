"""Tables of confirmed fraud: of every kind and form, and what is wrong with one in one line."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets
from buckets.errors import BucketsError
from buckets.verdicts.confirmed import given_fraud, read_confirmed_fraud
from tests.core.backtests import SCHEMA, rule

ROWS = [{"event_id": "007", "amount": "12.50"}, {"event_id": "e2", "amount": None}]
EXPECTED = {"007": Decimal("12.50"), "e2": None}


def read(path):
    return dict(read_confirmed_fraud(path, SCHEMA, "amount"))


def test_every_kind_of_table_is_read(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "fraud.parquet")
    write_deltalake(tmp_path / "fraud", table)
    (tmp_path / "fraud.csv").write_text("event_id,amount\n007,12.50\ne2,\n")
    (tmp_path / "fraud.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    for name in ("fraud.parquet", "fraud", "fraud.csv", "fraud.jsonl"):
        assert read(tmp_path / name) == EXPECTED, name


def test_ids_may_stand_in_the_field_of_the_schema_or_in_lists(tmp_path):
    (tmp_path / "own.csv").write_text("id,amount,note\ne1,3,seen\n")
    assert read(tmp_path / "own.csv") == {"e1": Decimal(3)}
    (tmp_path / "truth.jsonl").write_text('{"event_ids": ["e1", "e2"], "amount": 7}\n{"event_ids": ["e3"]}\n')
    assert read(tmp_path / "truth.jsonl") == dict.fromkeys(["e1", "e2", "e3"])


def test_of_verdicts_only_fraud_counts(tmp_path):
    (tmp_path / "verdicts.csv").write_text("event_id,verdict\ne1,fraud\ne2,legitimate\ne3,\ne4,unclear\n")
    assert read(tmp_path / "verdicts.csv") == {"e1": None}
    lines = ["event_id,verdict,made_at", "e1,fraud,1", "e2,fraud,3", "e1,unclear,2", "e2,unclear,2"]
    (tmp_path / "changed.csv").write_text("\n".join(lines))
    assert read(tmp_path / "changed.csv") == {"e2": None}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fraud.csv", "payment,amount\ne1,3\n"),
        ("fraud.csv", "event_id\n"),
        ("fraud.csv", "event_id,amount\ne1,much\n"),
        ("fraud.jsonl", "[1]\n"),
        ("fraud.jsonl", "{\n"),
        ("fraud.txt", "e1\n"),
        ("fraud.parquet", "e1\n"),
    ],
)
def test_what_is_no_table_of_fraud_is_refused_in_one_line(tmp_path, name, text, as_worded):
    (tmp_path / name).write_text(text)
    with pytest.raises(BucketsError, check=as_worded) as refused:
        read(tmp_path / name)
    assert "\n" not in refused.value.message


def test_a_table_that_is_not_there_is_refused_in_one_line(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        read(tmp_path / "nothing.csv")


def test_amounts_of_a_program_count_by_their_shortest_text():
    given = {"a": "1.10", "b": 0.1, "c": 7, "d": Decimal("2.50"), "e": None}
    expected = {"a": Decimal("1.10"), "b": Decimal("0.1"), "c": Decimal(7), "d": Decimal("2.50"), "e": None}
    assert given_fraud(given) == expected


@pytest.mark.parametrize(
    "fraud",
    [
        {"a": float("nan")},
        {"a": Decimal("Infinity")},
        {"a": "much"},
        {"a": True},
        {"a": [1]},
        {7: 1},
        ["a"],
    ],
)
def test_what_a_program_cannot_give_is_one_line(fraud, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        given_fraud(fraud)


def test_one_sweep_and_amounts_of_a_program_go_into_a_backtest():
    rows = [{"id": f"e{n}", "t": 1_700_000_000_000 + n, "payer": "p", "card": "c", "amount": "5.00"} for n in range(3)]
    fraud = {"e0": 2.5, "e1": "1"}
    report = buckets.backtest(pa.Table.from_pylist(rows), [rule("r")], SCHEMA, fraud=fraud, sweeps="limit=1,2,30")
    assert [(each.values, each.figures.fraud.caught) for each in report.variants] == [
        (("1",), 2),
        (("2",), 2),
        (("30",), 0),
    ]

"""Results read from disk without Spark."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import buckets as package
from buckets.errors import BucketsError
from buckets.outputs.recorded_outputs import read_rows

COLUMNS = ["event_id", "event_time", "key", "value"]


def test_json_lines_are_read_with_the_wanted_columns(tmp_path):
    lines = [{"event_id": f"é{n}", "event_time": n, "key": {"p": n}, "value": "1.50", "more": 1} for n in range(2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "alerts.jsonl").write_text(text, encoding="utf-8")
    assert read_rows(tmp_path, "alerts", COLUMNS) == [{name: line[name] for name in COLUMNS} for line in lines]
    assert read_rows(tmp_path, "alerts") == lines


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_delta_tables_are_read_with_times_in_ms_and_keys_as_mappings(tmp_path, unit):
    factor = {"ms": 1, "us": 1000}[unit]
    table = pa.table(
        {
            "event_id": ["a", "b"],
            "event_time": pa.array([-1 * factor, 1_700_000_000_123 * factor], pa.timestamp(unit, "UTC")),
            "key": ['{"p": "é"}', "{}"],
            "value": pa.array(["1.50", None]),
            "more": [1, 2],
        }
    )
    write_deltalake(tmp_path / "alerts", table)
    assert read_rows(tmp_path, "alerts", COLUMNS) == [
        {"event_id": "a", "event_time": -1, "key": {"p": "é"}, "value": "1.50"},
        {"event_id": "b", "event_time": 1_700_000_000_123, "key": {}, "value": None},
    ]
    assert [row["more"] for row in read_rows(tmp_path, "alerts")] == [1, 2]


def test_a_delta_table_goes_before_json_lines(tmp_path):
    write_deltalake(tmp_path / "alerts", pa.table({"event_id": ["delta"]}))
    (tmp_path / "alerts.jsonl").write_text('{"event_id": "lines"}\n')
    assert read_rows(tmp_path, "alerts", ["event_id"]) == [{"event_id": "delta"}]


def test_what_is_not_there_is_named(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path / "none", "alerts", COLUMNS)
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts", COLUMNS)
    (tmp_path / "file").write_text("")
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path / "file", "alerts", COLUMNS)


def test_a_broken_table_is_named(tmp_path, as_worded):
    log = tmp_path / "alerts" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{broken")
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts", COLUMNS)


def test_a_table_without_a_wanted_column_is_named(tmp_path, as_worded):
    write_deltalake(tmp_path / "alerts", pa.table({"event_id": ["a"]}))
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts", ["event_id", "value"])


@pytest.mark.parametrize("text", ['{"event_id": "a"}\n{"event', "[1]\n", "{}\n", "\xff\n"])
def test_broken_lines_are_named(tmp_path, text, as_worded):
    (tmp_path / "alerts.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts", ["event_id"])


def test_a_table_whose_file_is_gone_is_named(tmp_path, as_worded):
    write_deltalake(tmp_path / "alerts", pa.table({"event_id": ["a"]}))
    for file in (tmp_path / "alerts").glob("*.parquet"):
        file.unlink()
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(str(tmp_path), "alerts")


def test_a_key_that_is_not_json_is_named(tmp_path, as_worded):
    write_deltalake(tmp_path / "alerts", pa.table({"key": ["a"]}))
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts")


@pytest.mark.parametrize("line", ["[" * 100_000, "1", '"'])
def test_a_line_that_is_not_a_result_is_named(tmp_path, line, as_worded):
    (tmp_path / "alerts.jsonl").write_text(line + "\n")
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts")


def test_a_folder_in_place_of_lines_is_named(tmp_path, as_worded):
    (tmp_path / "alerts.jsonl").mkdir()
    with pytest.raises(BucketsError, check=as_worded):
        read_rows(tmp_path, "alerts")


# As a table


EVENT = {"id": "e1", "amount": "10.50"}
TERMS = [{"name": "recent", "function": "sum", "value": "10.50", "exact": True, "count": 2, "warm": True}]


def test_a_table_has_structs_timestamps_and_decimals_from_either_kind_of_file(tmp_path):
    line = {"event_id": "e1", "event_time": 1, "key": {"p": "a"}, "value": "1.50", "event": EVENT, "terms": TERMS}
    (tmp_path / "alerts.jsonl").write_text(json.dumps(line) + "\n")
    from_lines = package.read_output(tmp_path, "alerts")
    written = pa.table(
        {
            "event_id": ["e1"],
            "event_time": pa.array([1000], pa.timestamp("us", "UTC")),
            "key": ['{"p": "a"}'],
            "value": pa.array([Decimal("1.50")], pa.decimal128(38, 8)),
            "event": [json.dumps(EVENT)],
            "terms": [json.dumps(TERMS)],
        }
    )
    write_deltalake(tmp_path / "delta" / "alerts", written)
    from_delta = package.read_output(tmp_path / "delta", "alerts")
    for found in (from_lines, from_delta):
        (row,) = found.to_pylist()
        assert found.schema.field("event_time").type == pa.timestamp("ms", "UTC")
        assert (row["key"], row["event"], row["value"]) == ({"p": "a"}, EVENT, Decimal("1.50"))
        assert {name: row["terms"][0][name] for name in TERMS[0]} == TERMS[0]
        assert package.read_output(tmp_path, "alerts", ["event_id"]).column_names == ["event_id"]


def test_keys_of_several_groups_and_of_none_are_one_struct(tmp_path):
    keys = [{"p": "a", "vip": True}, {"account": 7}, {}]
    (tmp_path / "alerts.jsonl").write_text("".join(json.dumps({"key": key}) + "\n" for key in keys))
    found = package.read_output(tmp_path, "alerts")
    assert found.schema.field("key").type == pa.struct(
        [("p", pa.string()), ("vip", pa.bool_()), ("account", pa.int64())]
    )
    assert [{k: v for k, v in key.items() if v is not None} for key in found["key"].to_pylist()] == keys

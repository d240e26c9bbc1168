"""The main job over every kind of source, with Delta tables for results; stopped, and started again."""

import json
import os
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from deltalake import write_deltalake
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from buckets.errors import BucketsError
from tests.spark.command import PHASES, RunningCommand
from tests.spark.job_folder import FIRST_MTIME_S, OUTPUTS, JobFolder, Row, written_batches
from tests.spark.payments import RULES, SCHEMA, payments

pytestmark = pytest.mark.spark

EVENTS = payments(100)
ORIGIN = ("batch_id", "source", "position")


def arrow_table(events: list[Row]) -> pa.Table:
    """Events with typed columns, and their number in arrival order."""
    numbered = [event | {"arrival": number} for number, event in enumerate(events)]
    return pa.Table.from_pylist(numbered)


def write_csv(job: JobFolder) -> dict[str, Any]:
    lines = [",".join(EVENTS[0]), *(",".join(map(str, event.values())) for event in EVENTS)]
    job.add_file(0, lines, suffix="csv")
    return {"kind": "csv", "path": f"../{job.root.name}/source"}


def write_parquet(job: JobFolder) -> dict[str, Any]:
    pq.write_table(arrow_table(EVENTS), job.source / "events.parquet")
    return {"kind": "parquet", "path": "source"}


def write_delta(job: JobFolder) -> dict[str, Any]:
    backwards = pa.array(range(len(EVENTS) - 1, -1, -1))
    write_deltalake(job.source, arrow_table(EVENTS).take(backwards))
    return {"kind": "delta", "path": "source", "arrival": "arrival"}


def without_origin(rows: list[Row]) -> list[Row]:
    kept = [{name: value for name, value in row.items() if name not in ORIGIN} for row in rows]
    return sorted(kept, key=repr)


@pytest.mark.parametrize(
    ("write", "evaluations"),
    [(write_csv, True), (write_parquet, False), (write_delta, False)],
    ids=["csv", "parquet", "delta"],
)
def test_the_same_events_give_the_same_rows_from_any_source(spark, finished, tmp_path, write, evaluations):
    """Files in folders of the source are not opened, and keep no others from being read, whatever their names."""
    job = JobFolder(tmp_path)
    if write is not write_delta:
        for name in ("day=1/deep/a.jsonl.gz", "value=1/b.jsonl.gz", "done/c.jsonl.gz"):
            (job.source / name).parent.mkdir(parents=True)
            (job.source / name).write_text("neither packed nor Parquet")
    job.configure(source=write(job), output={"path": "tables", "evaluations": evaluations})
    job.run(spark)
    found, expected = job.all_rows(), finished.all_rows()
    if not evaluations:
        del expected["evaluations"]
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"batches"}:
        assert without_origin(found[name]) == without_origin(expected[name]), name
    assert expected["alerts"]


def test_each_parquet_file_is_read_by_its_own_types_however_old_it_is_and_wherever_it_lies(spark, finished, tmp_path):
    """The second file has other types and wider amounts, and is years older; a broken one beside it loses nothing."""
    job = JobFolder(tmp_path, source={"kind": "parquet", "path": "source", "subfolders": True})
    pq.write_table(arrow_table(EVENTS[:50]), job.source / "first.parquet")
    job.run(spark)
    rest = arrow_table(EVENTS[50:])
    nanoseconds = pa.array([event["t"] * 10**6 + 999_999 for event in EVENTS[50:]], pa.timestamp("ns", "UTC"))
    amounts = pa.array([Decimal(event["amount"]) for event in EVENTS[50:]], pa.decimal256(60, 40))
    rest = rest.set_column(1, "t", nanoseconds).set_column(4, "amount", amounts)
    rest = rest.set_column(2, "payer", rest["payer"].combine_chunks().dictionary_encode())
    second = job.source / "deep" / "second # %.parquet"
    second.parent.mkdir()
    pq.write_table(rest, second)
    os.utime(second, (FIRST_MTIME_S, FIRST_MTIME_S))
    third = job.source / "third.parquet"
    third.write_bytes(b"PAR1")
    with pytest.raises(BucketsError, match=rf"^events {third}: is not a Parquet file .*; replace it by a whole file"):
        job.run(spark)
    pq.write_table(rest.slice(0, 0), third)
    said: list[str] = []
    job.run(spark, said.append)
    (line,) = said
    assert line.startswith("batch 1: files that are older (")
    found, expected = job.all_rows(), finished.all_rows()
    for name in expected.keys() - {"batches"}:
        assert without_origin(found[name]) == without_origin(expected[name]), name
    assert {row["source"] for row in found["alerts"] if row["batch_id"]} == {str(second)}


def test_commits_out_of_the_order_of_their_column_are_refused_or_taken_as_they_come(spark, tmp_path):
    """One at a time, the second commit lies before the first; the field's name has backticks."""
    schema = SCHEMA | {"attributes": {"`pay`er`": "string", "kind": "string"}}
    rules = [RULES[0] | {"group_by": ["`pay`er`"]}]
    source = {"kind": "delta", "path": "source", "arrival": "arrival", "max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source)
    job.write_schema(schema)
    job.write_rules(rules)
    table = arrow_table(EVENTS[:9]).rename_columns(["id", "t", "`pay`er`", "kind", "amount", "arrival"])
    for part in (table.slice(3), table.slice(0, 3)):
        write_deltalake(job.source, part, mode="append")
    with pytest.raises(BucketsError, match=r"^batch 1: arrival 0 arrives after 8 of an earlier batch, so results"):
        job.run(spark)
    assert {row["batch_id"] for row in job.rows("batches")} == {0}
    job.configure(source=source | {"out_of_order": "take"})
    job.run(spark)
    assert {row["batch_id"]: row["events_in"] for row in job.rows("batches")} == {0: 6, 1: 3}


def test_late_events_are_a_table_that_spark_reads(spark, finished):
    text, moment = StringType(), TimestampType()
    fields = {
        "event_id": text,
        "group_by": ArrayType(text),
        "key": text,
        "event_time": moment,
        "clock": moment,
        "applied": BooleanType(),
        "too_late": BooleanType(),
        "other_event_id": text,
        "position": LongType(),
    }
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    rows = [tuple(row[name] for name in fields) for row in finished.rows("late_events")]
    found = spark.read.format("delta").load(str(finished.tables / "late_events")).select(*fields)
    assert rows
    assert_df_equality(found, spark.createDataFrame(rows, schema), ignore_row_order=True)


def test_values_are_decimals_with_room_for_an_average(spark, finished):
    table = spark.read.format("delta").load(str(finished.tables / "evaluations"))
    assert table.schema["value"].dataType == DecimalType(38, 8)
    inexact = table.where(~F.col("exact") | (F.col("lower") != F.col("value")) | (F.col("upper") != F.col("value")))
    assert inexact.isEmpty()


def test_the_accounts_of_every_batch_balance_and_add_up_to_the_rows_of_the_tables(finished):
    accounts = finished.rows("batches")
    ways_out = (
        "no_key",
        "filtered",
        "evaluated",
        "late",
        "too_late",
        "duplicates",
        "collisions_not_kept",
        "dead_letters",
        "skipped",
        "unjudged",
    )
    assert all(account["events_in"] == sum(account[way] for way in ways_out) for account in accounts)
    groups = {account["group"] for account in accounts}
    assert {account["batch_id"] for account in accounts} == {0, 1, 2, 3}
    assert len(accounts) == 4 * len(groups)
    for group in groups:
        mine = [account for account in accounts if account["group"] == group]
        assert sum(account["events_in"] for account in mine) == len(EVENTS)
    counted = Counter({name: sum(account[name] for account in accounts) for name in (*ways_out, "alerts")})
    late = finished.rows("late_events")
    assert counted["late"] == sum(not row["too_late"] for row in late) > 0
    assert counted["too_late"] == sum(row["too_late"] for row in late) > 0
    assert counted["duplicates"] == len(finished.rows("duplicates")) > 0
    assert counted["alerts"] == len(finished.rows("alerts")) > 0
    rules_of = Counter(json.dumps(rule["group_by"]) + str(rule.get("where")) for rule in RULES)
    assert set(rules_of.values()) == {1}, "a group has one rule, so that it has one evaluation for each event"
    assert counted["evaluated"] == len(finished.rows("evaluations"))


def test_every_row_names_the_batch_that_wrote_it(finished):
    file_of_batch = {0: "000.jsonl", 1: "001.jsonl", 2: "002.jsonl", 3: "003.jsonl"}
    for name in ("alerts", "late_events", "collisions", "duplicates"):
        for row in finished.rows(name):
            assert row["source"] == str(finished.source / file_of_batch[row["batch_id"]]), name


def test_interrupted_and_started_again_nothing_is_lost_or_doubled(spark, finished, tmp_path):
    sockets = Path(tempfile.mkdtemp(prefix="sockets-"))  # the path of a socket must be short
    settings = {"spark.python.unix.domain.socket.dir": str(sockets)}
    job = JobFolder(tmp_path, trigger={"interval": "100ms"}, spark=settings)
    files = [path.read_text(encoding="utf-8").splitlines() for path in sorted(finished.source.iterdir())]
    job.add_file(0, files[0])
    (job.source / ".001.jsonl").write_text("not yet whole")
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: (job.checkpoint / "spark" / "commits" / "0").exists())
        assert any(sockets.iterdir())
        assert command.interrupt() == 0
        said = command.stderr.splitlines()
    phases = [line for line in said if line.startswith(PHASES)]
    unread, *batches, stopping, last = (line for line in said if line not in phases)
    assert phases == [
        "starting Spark",
        f"following the rules of {job.root / 'rules.yaml'}",
        f"waiting for payments from {job.source}; Ctrl-C stops",
    ]
    (job.source / ".001.jsonl").unlink()
    assert unread.startswith(f"events {job.source}/.001.jsonl: is not read: its name begins with '_' or '.'")
    assert stopping == "stopping after the batch that is running…"
    assert all(line.startswith("batch ") for line in batches)
    assert last == f"stopped after {len(files[0])} events; start it again to go on"
    sockets.rmdir()

    for number in (1, 2, 3):
        job.add_file(number, files[number])
    job.configure()
    job.run(spark)
    found, expected = job.all_rows(), finished.all_rows()
    for name in OUTPUTS:
        assert [row | {"source": None} for row in found[name]] == [row | {"source": None} for row in expected[name]], (
            name
        )
    assert found["evaluations"] == expected["evaluations"]


def test_changed_rules_hold_from_the_next_batch_and_an_event_is_evaluated_under_one_version(spark, finished, tmp_path):
    before = finished.all_rows()
    job = finished.copy_to(tmp_path)
    (tmp_path / "source").rmdir()
    raised = RULES[0] | {"version": 2, "limit": {"operator": ">", "value": "1000000"}}
    added = RULES[2] | {"rule_id": "all-count", "aggregate": {"function": "count"}}
    job.write_rules([raised, *RULES[1:], added])
    late_file = finished.source / "004.jsonl"
    try:
        finished.add_file(
            4, [json.dumps(event | {"id": f"x{event['id']}", "t": event["t"] + 60_000}) for event in EVENTS[:20]]
        )
        job.run(spark)
    finally:
        late_file.unlink(missing_ok=True)
    assert {account["batch_id"]: account["ruleset_version"] for account in job.rows("batches")} == {
        0: 1,
        1: 1,
        2: 1,
        3: 1,
        4: 2,
    }
    evaluations = job.rows("evaluations")
    assert [row for row in evaluations if row["batch_id"] < 4] == before["evaluations"]
    new = [row for row in evaluations if row["batch_id"] == 4]
    assert {row["ruleset_version"] for row in new} == {2}
    assert {row["rule_id"] for row in new} == {"payer-sum", "card-count", "all-average", "all-count"}
    assert {row["rule_version"] for row in new if row["rule_id"] == "payer-sum"} == {2}
    assert [row for row in job.rows("alerts") if row["batch_id"] < 4] == before["alerts"]
    assert not [row for row in job.rows("alerts") if row["batch_id"] == 4 and row["rule_id"] == "payer-sum"]
    assert written_batches(job.tables / "batches") == {0, 1, 2, 3, 4}

"""The audit on a real broker and real Delta tables: what topics hold is in the tables, each message once."""

import json
import shutil
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from jsonschema import Draft202012Validator
from pyspark.sql import functions as F

from buckets.audit.tables import TRANSACTIONS, UNREADABLE, audit_tables
from buckets.config.job import load_job
from buckets.delta import upkeep
from buckets.delta.upkeep import join_small_files
from buckets.errors import BucketsError
from buckets.exit_codes import FAILED, MISUSED
from buckets.kafka.local_broker import free_port
from buckets.outputs import columns
from buckets.outputs.contract import schema_path
from buckets.outputs.messages import ID, Message
from buckets.spark.prepared_job import Listener, prepare
from tests.core.real_messages import real_messages
from tests.kafka.audit_job import AUDIT, AuditJob, Row, assert_tables_hold_topics
from tests.prometheus import get
from tests.spark.command import RunningCommand, one_line, run_command
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sent() -> dict[str, list[Message]]:
    return real_messages()


def test_what_a_job_sends_fits_the_schemas_and_is_in_the_tables_once(broker, spark, tmp_path):
    job = AuditJob(broker, tmp_path, trigger={"available_now": True}, partitions=2)
    job.write_rules([*RULES, RULES[0] | {"rule_id": "quiet", "cooldown": "1s"}])
    job.send(payments(100))
    broker.produce(job.topic, [b"\xff{", "no payment", '{"id": "", "t": 0}'], ["x", "y", "z"])
    prepare(load_job(job.conf)).query(spark, Listener()).run(None)

    (written,) = job.audit(spark).values()

    assert written.unreadable == 0
    assert_tables_hold_topics(job)
    transactions = job.rows(TRANSACTIONS)
    assert [row["value_bytes"] for row in transactions if row["value_bytes"] is not None] == [b"\xff{"]
    assert all(row["day"] == row["published_at"].date() for row in transactions)
    for name in columns.TOPICS:
        published = json.loads(schema_path(columns.PUBLISHED[name].contract).read_text(encoding="utf-8"))
        check = Draft202012Validator(published | {"additionalProperties": False})
        messages = broker.read(job.topic_of(name))
        assert len(messages) == written.messages[name] > 0
        for message in messages:
            check.validate(json.loads(message.value()))
    assert all(row["ingested_at"] is not None for row in job.rows(columns.ALERTS))
    assert {row["reason"] for row in job.rows(columns.DEAD_LETTERS)} >= {"is not valid UTF-8"}


def test_repeats_are_dropped_in_a_batch_and_across_batches_and_restarts(broker, spark, tmp_path, sent):
    job = AuditJob(broker, tmp_path)
    for name in columns.TOPICS:
        job.put(name, [*sent[name], *sent[name][:3]])
    job.audit(spark)
    for name in columns.TOPICS:
        job.put(name, sent[name][:5])
    job.audit(spark)
    more = real_messages([event | {"id": f"more-{event['id']}"} for event in payments(50, seed=6)])
    for name in columns.TOPICS:
        job.put(name, [*sent[name][2:4], *more[name], *sent[name][-2:]])
    batches = job.audit(spark)

    assert_tables_hold_topics(job)
    assert all(len(job.rows(name)) == len({m.identity for m in (*sent[name], *more[name])}) for name in columns.TOPICS)
    assert sum(written.messages[columns.ALERTS] for written in batches.values()) == 4 + len(more[columns.ALERTS])


def test_only_tables_with_messages_in_the_batch_are_touched(broker, spark, tmp_path, sent):
    job = AuditJob(broker, tmp_path)
    job.audit(spark)
    before = {table.name: DeltaTable(table).version() for table in job.tables.iterdir() if table.is_dir()}
    assert set(before) == {*columns.TOPICS, TRANSACTIONS, UNREADABLE}
    job.put(columns.DUPLICATES, sent[columns.DUPLICATES])
    job.audit(spark)
    after = {name: DeltaTable(job.tables / name).version() for name in before}
    assert after == before | {columns.DUPLICATES: 1}


def test_what_cannot_be_read_is_kept_with_its_location_and_the_reason(broker, spark, tmp_path, sent):
    job = AuditJob(broker, tmp_path)
    alert = json.loads(sent[columns.ALERTS][0].value)
    values = [
        "{",
        sent[columns.ALERTS][0].value,
        b'\xff{"version": 1}',
        json.dumps(alert | {"version": 3}),
        None,
        json.dumps(alert | {"lower": "99999", "exact": False}),
    ]
    broker.produce(job.topic_of(columns.ALERTS), values, [None, "k", b"\xfe", "k", "k", "k"])
    job.put(columns.COLLISIONS, [Message("k", "[]", "")])
    (written,) = job.audit(spark).values()

    assert written.unreadable == 6
    assert [row["alert_id"] for row in job.rows(columns.ALERTS)] == [alert["alert_id"]]
    assert job.rows(columns.COLLISIONS) == []
    found = {(row["topic"], row["offset"]): row for row in job.rows(UNREADABLE)}
    topic = job.topic_of(columns.ALERTS)
    assert {offset: row["reason"].split(":")[0] for (name, offset), row in found.items() if name == topic} == {
        0: "broken JSON",
        2: "is not valid UTF-8 at byte 0",
        3: "version",
        4: "has no value",
        5: "does not fulfil value_in_bounds",
    }
    assert found[job.topic_of(columns.COLLISIONS), 0]["reason"] == "is not a JSON object"
    assert (found[topic, 0]["key"], found[topic, 0]["value"]) == (None, "{")
    assert (found[topic, 2]["key_bytes"], found[topic, 2]["value_bytes"]) == (b"\xfe", values[2])
    assert found[topic, 4]["value"] is None


def test_headers_of_messages_are_kept_and_a_path_may_lead_upwards(broker, spark, tmp_path):
    from buckets.kafka.sender import Sender

    job = AuditJob(broker, tmp_path / "conf", audit={"path": "../audit", "checkpoint": "../audit-checkpoint"})
    job.tables = tmp_path / "audit"
    sender = Sender(broker.kafka)
    sender.send(job.topic, "k", "not read as JSON", {ID: "a1", "from": "Zürich"})
    sender.flush()
    job.audit(spark)
    (row,) = job.rows(TRANSACTIONS)
    assert row["headers"] == [{"key": ID, "value": b"a1"}, {"key": "from", "value": "Zürich".encode()}]


@pytest.fixture(scope="module")
def kept(broker, spark, tmp_path_factory, sent) -> AuditJob:
    """Tables with rows in them. Nobody may change them."""
    job = AuditJob(broker, tmp_path_factory.mktemp("kept"))
    for name in columns.TOPICS:
        job.put(name, sent[name])
    job.send(payments(5))
    job.audit(spark)
    return job


LATER_MS = timedelta(milliseconds=1)
BREAKERS: dict[str, Callable[[Row], Row]] = {
    "alert_id_is_not_empty": lambda row: {"alert_id": ""},
    "count_is_large_enough": lambda row: {"count": 0, "count_lower": 0},
    "count_in_bounds": lambda row: {"count_upper": row["count"] - 1},
    "operator_is_known": lambda row: {"operator": "=>", "limit": "1" * 30},
    "value_in_bounds": lambda row: {"exact": False, "lower": row["upper"] + 1},
    "exact_is_one_value": lambda row: {"exact": True, "upper": row["value"] + 1},
    "exact_is_certain": lambda row: {"exact": True, "certain": False},
    "fired": lambda row: {"operator": ">", "limit": "99999.5"},
    "window_has_length": lambda row: {"window_start": row["window_end"]},
    "window_ends_by_event": lambda row: {"window_end": row["window_end"] + LATER_MS},
}


def refused_row(job: AuditJob, change: Callable[[Row], Row]) -> tuple[Path, pa.Table]:
    """The table of alerts, and a row of it that is good but for a change."""
    path = job.tables / columns.ALERTS
    (row, *_) = job.rows(columns.ALERTS)
    fields = audit_tables(columns.TOPICS)[columns.ALERTS].columns
    return path, pa.Table.from_pylist([row | change(row)], pa.schema([(each.name, each.type) for each in fields]))


@pytest.mark.parametrize("name", BREAKERS)
def test_delta_itself_holds_writers_to_the_constraints(kept, name):
    """The row is one that the check of that name alone refuses."""
    path, row = refused_row(kept, BREAKERS[name])
    checks = audit_tables(columns.TOPICS)[columns.ALERTS].checks
    assert [check.name for check in checks if not check.holds(row.to_pylist()[0])] == [name]
    with pytest.raises(DeltaError, match="failed validation check"):
        write_deltalake(path, row, mode="append")


def test_spark_too_holds_writers_to_the_constraints(kept, spark):
    for change, said in ((BREAKERS["fired"], "fired"), (lambda row: {"rule": None}, "NOT NULL")):
        path, row = refused_row(kept, change)
        version = DeltaTable(path).version()
        with pytest.raises(Exception, match=said):
            spark.createDataFrame(row).write.format("delta").mode("append").save(str(path))
        assert DeltaTable(path).version() == version


def test_tables_have_comments_types_partitions_and_the_constraints_that_are_declared(kept):
    for name, table in audit_tables(columns.TOPICS).items():
        there = DeltaTable(kept.tables / name)
        fields = {field.name: field for field in there.schema().fields}
        assert list(fields) == [column.name for column in table.columns]
        assert all(fields[column.name].metadata["comment"] == column.comment for column in table.columns)
        assert [fields[column.name].nullable for column in table.columns] == [c.nullable for c in table.columns]
        assert there.metadata().partition_columns == ["day"]
        configuration = there.metadata().configuration
        declared = {f"delta.constraints.{check.name}": check.sql for check in table.checks}
        assert {key: value for key, value in configuration.items() if "constraints" in key} == declared


def test_checks_in_python_and_in_sql_say_the_same_of_rows_good_and_bad(spark, kept):
    """Both are asked about every alert, with each field that they read set to another value."""
    table = audit_tables(columns.TOPICS)[columns.ALERTS]
    changes = [{}, {"alert_id": ""}, {"count": 0}, {"exact": False}, {"certain": False}, {"limit": "60.0" + "0" * 20}]
    changes += [{"limit": limit} for limit in ("1", "-5.5", "9" * 38)]
    changes += [{"count_lower": None}, {"count_upper": None}, {"count_upper": 0}]
    changes += [{name: Decimal(value)} for name in ("value", "lower", "upper") for value in ("0", "61", "-7.25")]
    counts = ("count", "count_lower", "count_upper")
    changes += [dict.fromkeys(("value", "lower", "upper", "limit", "operator", *counts))]
    changes += [dict.fromkeys(("value", "lower", "upper", "terms"))]
    changes += [{"operator": operator} for operator in (">", ">=", "<", "<=", "=", "!=", "?")]
    some = kept.rows(columns.ALERTS)
    rows = [row | change for row in some[:: max(1, len(some) // 4)] for change in changes]
    schema = pa.schema([(column.name, column.type) for column in table.columns])
    known = [check for check in table.checks if check.name != "fired"]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema)).select(
        *(F.expr(check.sql).alias(check.name) for check in table.checks)
    )
    for row, by_sql in zip(rows, frame.collect(), strict=True):
        assert {check.name: check.holds(row) for check in known} == {c.name: by_sql[c.name] for c in known}
        if row["operator"] != "?":
            (fired,) = (check for check in table.checks if check.name == "fired")
            assert fired.holds(row) == by_sql["fired"], row


def test_verdicts_go_through_a_topic_and_count_for_the_quality_of_rules(broker, buckets, spark, tmp_path, sent):
    """Those of a command and of another program; what is none is kept as unreadable."""
    topic = f"verdicts-{uuid.uuid4().hex[:8]}"
    job = AuditJob(broker, tmp_path, verdicts={"topic": topic})
    job.put(columns.ALERTS, sent[columns.ALERTS])
    job.audit(spark)
    one, other = (json.loads(message.value) for message in sent[columns.ALERTS][:2])
    for verdict in ("unclear", "fraud"):
        ran = buckets("verdict", one["alert_id"], verdict, "--by", "ann", "--conf", job.conf)
        assert ran.out == f"alert {one['alert_id']} of {one['rule_id']}, event {one['event_id']}: {verdict}, by ann\n"
    case = {
        "version": 1,
        "id": "case-7",
        "alert_id": other["alert_id"],
        "verdict": "legitimate",
        "by": "c",
        "made_at": 1,
    }
    broker.produce(topic, [json.dumps(case), json.dumps(case), json.dumps(case | {"verdict": "?"})], ["k", "k", "k"])
    (written,) = job.audit(spark).values()

    assert (written.repeats, written.unreadable) == (1, 1)
    said = [(row["alert_id"], row["event_id"], row["verdict"]) for row in job.rows(columns.VERDICTS)]
    kept = [(one["alert_id"], one["event_id"], verdict) for verdict in ("unclear", "fraud")]
    assert sorted(said, key=str) == sorted([*kept, (other["alert_id"], None, "legitimate")], key=str)
    assert [row["reason"] for row in job.rows(UNREADABLE)] == ['verdict: "?" is none of fraud, legitimate, unclear']
    quality = json.loads(buckets("rules", "quality", job.conf, "--json").out)
    found = {each["rule_id"]: each for each in quality["rules"]}
    assert quality["frauds"] == 1
    assert found[one["rule_id"]]["fraud"] >= 1
    assert found[other["rule_id"]]["legitimate"] >= 1
    assert found[one["rule_id"]]["time_to_decide"] is not None


def test_small_files_are_joined_and_versions_are_kept_as_the_settings_say(broker, spark, tmp_path, sent, monkeypatch):
    joins = partial(upkeep.Upkeep, join=partial(join_small_files, fewest=3))
    monkeypatch.setattr("buckets.spark.audit.Upkeep", joins)
    job = AuditJob(broker, tmp_path)
    for part in range(4):
        job.put(columns.ALERTS, sent[columns.ALERTS][part::4])
        job.audit(spark)
    table = DeltaTable(job.tables / columns.ALERTS)
    days = {row["day"] for row in job.rows(columns.ALERTS)}
    assert len(table.file_uris()) < 4 * len(days)
    assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 86400 seconds"
    assert_tables_hold_topics(job)

    job.put(columns.ALERTS, sent[columns.ALERTS])
    conf = yaml.safe_load(job.conf.read_text())
    job.conf.write_text(yaml.safe_dump(conf | {"audit": AUDIT | {"keep_versions": "30d"}}))
    (written,) = job.audit(spark).values()
    assert written.repeats == len(sent[columns.ALERTS])
    assert_tables_hold_topics(job)
    assert spark.read.format("delta").load(str(job.tables / columns.ALERTS)).count() == len(job.rows(columns.ALERTS))
    kept_for = DeltaTable(job.tables / columns.ALERTS).metadata().configuration["delta.deletedFileRetentionDuration"]
    assert kept_for == "interval 2592000 seconds"


def fault(job: AuditJob, code: int = FAILED) -> str:
    """The one line with which `buckets audit` ends."""
    return one_line(run_command("audit", job.conf, "--once"), code)


def test_without_an_audit_in_the_configuration_one_line_says_what_to_add(broker, tmp_path):
    job = AuditJob(broker, tmp_path)
    conf = yaml.safe_load(job.conf.read_text())
    del conf["audit"]
    job.conf.write_text(yaml.safe_dump(conf))
    assert "add `audit: {path: audit, checkpoint: audit-checkpoint}`" in fault(job, MISUSED)


def test_folders_that_belong_to_something_else_are_refused_in_one_line(kept, broker, tmp_path):
    job = AuditJob(broker, tmp_path, audit={"path": str(kept.tables)})
    assert "holds tables of another checkpoint" in fault(job)
    job.conf.write_text(kept.conf.read_text().replace("checkpoint: audit-checkpoint", "checkpoint: audit/inside"))
    assert "lie in each other" in fault(job)
    elsewhere = AuditJob(broker, tmp_path / "elsewhere", audit={"checkpoint": str(kept.audit_checkpoint)})
    assert "does not hold the table" in fault(elsewhere)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    full = AuditJob(broker, tmp_path / "third", audit={"path": str(tmp_path / "full")})
    assert "holds something that this program did not write" in fault(full)
    full = AuditJob(broker, tmp_path / "fourth", audit={"checkpoint": str(tmp_path / "full")})
    assert "is not a checkpoint of an audit" in fault(full)


def test_a_missing_topic_is_one_line(broker, tmp_path):
    job = AuditJob(broker, tmp_path)
    broker.delete(job.topic_of(columns.COLLISIONS))
    assert f"there is no topic {job.topic_of(columns.COLLISIONS)}" in fault(job)


def test_a_topic_that_the_configuration_names_no_more_is_still_read_to_its_end(broker, spark, tmp_path, sent):
    job = AuditJob(broker, tmp_path)
    job.put(columns.ALERTS, sent[columns.ALERTS][:3])
    job.audit(spark)
    job.put(columns.ALERTS, sent[columns.ALERTS][3:5])
    conf = yaml.safe_load(job.conf.read_text())
    new = broker.create(f"new-{job.topic_of(columns.ALERTS)}")
    conf["output"]["topics"]["alerts"] = new
    job.conf.write_text(yaml.safe_dump(conf))
    broker.produce(new, [message.value for message in sent[columns.ALERTS][4:9]])
    job.audit(spark)
    assert [
        row["alert_id"]
        for row in sorted(job.rows(columns.ALERTS), key=lambda row: (row["topic"] == new, row["offset"]))
    ] == [message.identity for message in sent[columns.ALERTS][:9]]


def test_ctrl_c_ends_it_in_good_order_and_a_restart_goes_on(broker, tmp_path, sent):
    job = AuditJob(broker, tmp_path)
    job.put(columns.ALERTS, sent[columns.ALERTS][:5])
    port = free_port()
    with RunningCommand("audit", job.conf, "--metrics-port", port, log=tmp_path / "first.log") as command:
        command.wait_until(lambda: "batch 0: 5 messages" in command.stderr)
        assert get(f"http://127.0.0.1:{port}/readyz")[0] == 200
        assert 'buckets_audit_messages_total{table="alerts"} 5.0' in get(f"http://127.0.0.1:{port}/metrics")[1]
        assert f"checkpoint {job.audit_checkpoint} is in use by process " in fault(job)
        assert command.interrupt() == 0
        assert "stopped after 5 messages; start it again to go on" in command.stderr
        assert "Traceback" not in command.stderr
    job.put(columns.ALERTS, sent[columns.ALERTS])
    job.send(payments(20))
    done = run_command("audit", job.conf, "--once")
    assert done.returncode == 0, done.stderr
    said = f"{len(sent[columns.ALERTS]) + 20:,} messages, 5 repeats dropped; tables are in {job.tables}"
    assert said in done.stderr
    assert_tables_hold_topics(job)


def test_a_batch_that_is_in_some_of_its_tables_is_run_again_into_the_others(broker, spark, tmp_path, sent):
    """What a crash between two tables leaves behind: some have the batch, and Spark does not know that it is done."""
    job = AuditJob(broker, tmp_path)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        for name in columns.TOPICS:
            job.put(name, [*sent[name][part], *sent[name][:1]])
        broker.produce(job.topic_of(columns.ALERTS), ["{"])
        job.send(payments(9))
        if part.start == 0:
            job.audit(spark)
            shutil.copytree(job.tables, tmp_path / "before")
    job.audit(spark)
    for name in (columns.ALERTS, columns.DEAD_LETTERS, TRANSACTIONS, UNREADABLE):
        shutil.rmtree(job.tables / name)
        shutil.copytree(tmp_path / "before" / name, job.tables / name)
    commits = job.audit_checkpoint / "spark" / "commits"
    for path in (commits / "1", commits / ".1.crc"):
        path.unlink(missing_ok=True)
    versions = {name: DeltaTable(job.tables / name).version() for name in columns.TOPICS}
    assert len(set(versions.values())) == 2

    batches = job.audit(spark)

    assert list(batches) == [1]
    assert_tables_hold_topics(job)
    assert [row["value"] for row in job.rows(UNREADABLE)] == ["{", "{"]
    assert {DeltaTable(job.tables / name).version() for name in columns.TOPICS} == {max(versions.values())}


def test_beside_something_else_its_failure_is_told_and_raised_at_the_end(broker, spark, tmp_path, sent):
    from buckets.spark.audit import AuditListener, audit_beside

    job = AuditJob(broker, tmp_path)
    told: list[BucketsError] = []
    with audit_beside(spark, load_job(job.conf), AuditListener()):
        job.put(columns.ALERTS, sent[columns.ALERTS])
    assert_tables_hold_topics(job)

    def fail_beside() -> None:
        with audit_beside(spark, load_job(job.conf), AuditListener(on_failure=told.append)):
            broker.delete(job.topic_of(columns.DUPLICATES))
            given_up_s = time.monotonic() + 60
            while not told and time.monotonic() < given_up_s:
                time.sleep(0.1)

    with pytest.raises(BucketsError, match="has been deleted"):
        fail_beside()
    assert told

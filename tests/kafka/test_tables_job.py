"""A job from topics to tables: its archive is that of the same job to topics."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer

from buckets.archive.history import History
from buckets.config.job import load_job
from buckets.kafka.faults import client_settings
from buckets.outputs.columns import ALERTS
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.audit_job import AuditJob
from tests.kafka.broker import WITHIN_S
from tests.kafka.test_scoring import run_to_end
from tests.spark.job_folder import read_table
from tests.spark.payments import SCHEMA, payments

pytestmark = pytest.mark.spark
BEGIN_MS = round(time.time() - 86_400) * 1000
TABLES = {"kind": "delta", "path": "tables", "evaluations": True}


class ArchivedAuditJob(AuditJob):
    """A job that takes 15 messages a batch, where `source` says nothing else, and has an archive."""

    def __init__(self, *given: Any, source: dict[str, Any] | None = None, **changes: Any) -> None:
        super().__init__(*given, archive={"path": "archive"}, trigger={"available_now": True}, **changes)
        self.configure(source=source or {"kind": "kafka", "topic": self.topic, "max_offsets_per_trigger": 15})

    def configure(self, **changes: Any) -> None:
        """Change the configuration."""
        self.conf.write_text(yaml.safe_dump(yaml.safe_load(self.conf.read_text()) | changes))

    def archived(self) -> pa.Table:
        """All rows of the archive."""
        history = History.open(load_job(self.conf))
        return pa.concat_tables(history.archive.tables())

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts in the tables of results."""
        return sorted(read_table(self.root / "tables" / ALERTS), key=lambda row: row["position"])

    def go_on(self, spark: Any) -> None:
        """Score what is in topics, also in those that were created again."""
        prepare(load_job(self.conf), [].append).query(spark, Listener()).run(None)


class Payments:
    """Sends payments with the payer as key, the kind in a header, and the time of the message as theirs."""

    def __init__(self, job: AuditJob) -> None:
        settings = {"transactional.id": job.topic, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({**client_settings(job.broker.kafka), **settings})
        self._producer.init_transactions(WITHIN_S)

    def send(self, topic: str, events: Sequence[dict[str, Any]], commit: bool = True) -> None:
        """Send payments in a transaction, the last one broken."""
        self._producer.begin_transaction()
        for number, event in enumerate(events, 1):
            value = json.dumps({"id": event["id"], "amount": event["amount"]})[: None if number < len(events) else 9]
            headers = [("x-kind", event["kind"])]
            self._producer.produce(topic, value, event["payer"], timestamp=BEGIN_MS + event["t"], headers=headers)
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(WITHIN_S)


def test_the_archive_of_a_job_with_tables_is_that_of_the_job_with_topics_and_says_the_same(
    spark, broker, buckets, tmp_path
):
    """Over a pattern, history that is not judged, transactions, fields beside values, and a topic that came again."""
    with_topics = ArchivedAuditJob(broker, tmp_path / "topics")
    cards, past = f"{with_topics.topic}-cards", f"past-{with_topics.topic}"
    source = {"topic_pattern": f"{with_topics.topic}-.*", "topics": [{"name": past, "judge": False}]}
    source |= {"kind": "kafka", "max_offsets_per_trigger": 25}
    with_topics.configure(source=source)
    tables = ArchivedAuditJob(broker, tmp_path / "tables", source=source, output=TABLES)
    jobs = (with_topics, tables)
    origins = {"payer": "key", "kind": "headers.x-kind"}
    schema = SCHEMA | {"event_time": {"broker": "create_time", "field": "t"}, "origins": origins}
    for job in jobs:
        (job.root / "schema.yaml").write_text(yaml.safe_dump(schema))
    broker.create(past)
    broker.create(cards, 2)
    sender, events = Payments(with_topics), payments(100)
    sender.send(past, events[:10])
    sender.send(cards, events[10:40])
    sender.send(cards, events[:20], commit=False)
    sender.send(cards, events[40:60])
    tables.configure(audit=None)
    for job in jobs:
        run_to_end(spark, job)
    assert tables.archived().equals(with_topics.archived())
    broker.delete(cards)
    broker.create(cards, 1)
    Payments(with_topics).send(cards, events[60:])
    for job in jobs:
        job.go_on(spark)

    found = tables.archived()
    assert found.equals(with_topics.archived())
    assert len(found) == 100
    assert len(set(found["_batch_id"].to_pylist())) > 4
    assert len([fault for fault in found["_fault"].to_pylist() if fault]) == 4
    assert {f"{cards}[0]", f"{cards}[1]", f"{cards}#2[0]", f"{past}[0]"} == set(found["_source"].to_pylist())
    for options in ([], ["--evaluations", "--cuts", "recorded"]):
        ran = buckets("replay", tables.conf, *options)
        assert "equal: all that is recorded came out again, and nothing else" in ran.out, ran.out + ran.err
    alert = next(row for row in reversed(tables.alerts()) if row["rule_id"] == "payer-sum")
    for command in (
        ("check", tables.conf),
        ("explain", tables.conf, alert["alert_id"]),
        ("backtest", tables.root / "rules.yaml", "--conf", tables.conf),
        ("features", tables.root / "rules.yaml", "--conf", tables.conf, "--out", tmp_path / "features.parquet"),
    ):
        ran = buckets(*command)
        assert ran.code == 0, ran.err

"""A job whose topics are kept as tables, and what must be in them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from buckets.audit.tables import TRANSACTIONS
from buckets.audit.writer import WrittenMessages
from buckets.config.job import load_job
from buckets.outputs import columns
from buckets.outputs.messages import Message
from buckets.spark.audit import AuditListener, AuditQuery, prepare_audit
from tests.kafka.broker import TestBroker
from tests.kafka.kafka_job import KafkaJob
from tests.spark.job_folder import read_table

AUDIT = {"path": "audit", "checkpoint": "audit-checkpoint", "interval": "200ms"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


class AuditJob(KafkaJob):
    """A job with topics of its own that are kept as tables."""

    def __init__(self, broker: TestBroker, root: Path, **changes: Any) -> None:
        """Write the folder and create the topics; `audit` may change its settings."""
        audit = AUDIT | changes.pop("audit", {})
        super().__init__(broker, root, evaluations=True, audit=audit, **changes)
        self.tables = root / "audit"
        self.audit_checkpoint = root / "audit-checkpoint"

    def topic_of(self, output: str) -> str:
        """The topic of an output."""
        return self.job.settings.output.topic(output)

    def put(self, output: str, messages: Iterable[Message]) -> None:
        """Put messages into the topic of an output."""
        chosen = list(messages)
        self.broker.produce(self.topic_of(output), [each.value for each in chosen], [each.key for each in chosen])

    def audit(self, spark: Any) -> dict[int, WrittenMessages]:
        """Keep what the topics hold now; return what became of the messages of each batch, by its number."""
        batches: dict[int, WrittenMessages] = {}

        def on_batch(batch_id: int, written: WrittenMessages, _: float) -> None:
            assert batch_id not in batches
            batches[batch_id] = written

        AuditQuery(spark, prepare_audit(load_job(self.conf)), AuditListener(on_batch)).run(once=True)
        return batches

    def batches_begun(self) -> int:
        """The number of batches of the audit that Spark has begun."""
        return len(list((self.audit_checkpoint / "spark" / "offsets").glob("[0-9]*")))

    def rows(self, table: str) -> list[Row]:
        """The rows of a table, in the order of its topic."""
        return sorted(read_table(self.tables / table), key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def first_of_each(self, output: str) -> list[Row]:
        """What the topic of an output holds, the first message of each id; a broken one is a bare brace."""
        found: dict[str, Row] = {}
        for message in self.broker.read(self.topic_of(output)):
            if message.value() == b"{":
                continue
            said = json.loads(message.value())
            location = {"partition": message.partition(), "offset": message.offset()}
            found.setdefault(said.get("alert_id") or said["id"], said | location)
        return list(found.values())


def as_said(row: Row) -> Row:
    """A row of a table as its message said it."""
    shown = dict(row)
    for name in ("day", "topic", "published_at", "topic_id"):
        del shown[name]
    assert shown.pop("other_fields") is None
    for name, value in shown.items():
        if isinstance(value, datetime):
            shown[name] = (value - EPOCH) // timedelta(milliseconds=1)
        elif name in columns.OBJECTS and value is not None:
            shown[name] = json.loads(value)
    return shown


def with_decimals(row: Row) -> Row:
    return {name: Decimal(value) if name in ("value", "lower", "upper") else value for name, value in row.items()}


def assert_tables_hold_topics(job: AuditJob) -> None:
    """Every table holds the first message of each id of its topic, and nothing else."""
    for name in columns.TOPICS:
        assert list(map(as_said, job.rows(name))) == list(map(with_decimals, job.first_of_each(name))), name
    for row, message in zip(job.rows(TRANSACTIONS), job.broker.read(job.topic), strict=True):
        assert (row["partition"], row["offset"]) == (message.partition(), message.offset())
        assert (row["value"].encode() if row["value_bytes"] is None else row["value_bytes"]) == message.value()
        assert row["key"] == message.key().decode()

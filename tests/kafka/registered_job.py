"""A job whose payments are written by schemas in a registry, and what has to hold of it in every format."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient

from buckets.archive.history import History
from buckets.config.job import load_job
from buckets.errors import Outage
from buckets.history.replay.replay import replay_history
from buckets.outputs.columns import ALERTS, DEAD_LETTERS
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.audit_job import AuditJob
from tests.kafka.broker import TestBroker
from tests.kafka.kafka_job import KafkaJob, Row
from tests.registry import SmallRegistry

NOWHERE = "http://127.0.0.1:1"


class RegisteredJob(AuditJob):
    """A job whose payments or results are by schemas of a registry; a `with` block closes the vendor's client of it."""

    part = "source"
    """Of the configuration, the one whose format that is."""

    def __init__(self, broker: TestBroker, root: Path, registry: str, written_in: str, **more: Any) -> None:
        kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers, "registry": {"url": registry}}
        super().__init__(broker, root, kafka=kafka, **more)
        settings = yaml.safe_load(self.conf.read_text())
        settings[self.part]["format"] = written_in
        self.conf.write_text(yaml.safe_dump(settings))
        self.job = load_job(self.conf)
        self.client = self.client_of(registry)

    def client_of(self, registry: str) -> SchemaRegistryClient:
        """The vendor's client of a registry."""
        return SchemaRegistryClient({"url": registry})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def lose_registry(self) -> None:
        """From the next start on there is no registry."""
        settings = yaml.safe_load(self.conf.read_text())
        settings["kafka"]["registry"]["url"] = NOWHERE
        self.conf.write_text(yaml.safe_dump(settings))


def check_all_is_known(
    spark: Any, buckets: Any, job: RegisteredJob, events: Sequence[Row], broken: Mapping[bytes, str]
) -> None:
    """See that dead letters, the archive, explanations and a replay say of messages what was sent.

    Args:
        spark: a session.
        buckets: runs a command.
        job: one that has ended, without its registry.
        events: all payments that were sent.
        broken: the other messages, in their order, and why each is no event, without a position in it.
    """
    letters = {letter["position"]: letter for letter in job.messages(DEAD_LETTERS)}
    assert [letters[at]["reason"].partition(" at byte")[0] for at in sorted(letters)] == [*broken.values()]
    assert [letters[at]["raw"] for at in sorted(letters)] == [f"0x{message.hex()}" for message in broken]
    job.audit(spark)
    history = History.open(load_job(job.conf))
    table = pa.concat_tables(history.archive.tables())
    assert table["_fault"].null_count == len(events)
    amounts = [amount for amount in table["amount"].to_pylist() if amount is not None]
    assert amounts == [Decimal(event["amount"]) for event in events]
    alert = job.messages(ALERTS)[-1]
    ran = buckets("explain", job.conf, alert["alert_id"], "--json")
    assert ran.code == 0, ran.err
    replayed = replay_history(history)
    assert replayed.differences == []
    assert replayed.compared[ALERTS] > 0


def run_while_registry_is_away(spark: Any, job: KafkaJob, registry: SmallRegistry) -> list[Any]:
    """Run a job whose registry answers again once it was missed; returns what is told of its batches."""
    outages: list[Outage] = []

    def on_outage(outage: Outage) -> None:
        outages.append(outage)
        registry.spoil = lambda path: None

    registry.spoil = lambda path: (503, {})
    reports: list[Any] = []
    prepare(load_job(job.conf)).query(spark, Listener(reports.append, on_outage=on_outage)).run(None)
    assert [outage.message for outage in outages] == [
        f"registry {registry.url}: answers 503; see that it runs, or correct kafka.registry.url"
    ]
    return reports

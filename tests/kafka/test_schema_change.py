"""A registered schema gets a field while a job runs, then the event schema and a rule have it, in Avro and Protobuf."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import yaml
from confluent_kafka import Message

from buckets.archive.history import History
from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import load_job
from buckets.history.replay.replay import replay_history
from buckets.outputs.columns import ALERTS, DEAD_LETTERS, EVALUATIONS, LATE_EVENTS
from tests.kafka.kafka_job import EVERY, Row, comparable
from tests.kafka.registered_job import RegisteredJob
from tests.kafka.schema_registry import schema_registry
from tests.kafka.test_avro import FIELDS, AvroJob
from tests.kafka.test_protobuf import PLAIN, ProtobufJob, schema_of
from tests.kafka.test_scoring import Running, run_to_end
from tests.spark.payments import RULES, SCHEMA, payments

pytestmark = pytest.mark.spark
WIDER = SCHEMA | {"version": 2, "attributes": {"device": "string", **SCHEMA["attributes"]}}
BROKEN = WIDER | {"version": 3, "attributes": WIDER["attributes"] | {"device": "long"}}
WINDOW_MS = 300
BY_DEVICE = {
    "rule_id": "by-device",
    "group_by": ["device"],
    "aggregate": {"function": "count"},
    "window": {"length": f"{WINDOW_MS}ms"},
    "limit": {"operator": ">=", "value": "2"},
}
OUTPUTS = (ALERTS, EVALUATIONS, LATE_EVENTS, DEAD_LETTERS)


class ChangingJob(RegisteredJob):
    """A job whose producer goes from one version of the schema to the next: without a device, with one, renamed."""

    versions: Sequence[Any]
    version = 0

    def __init__(self, *given: Any, **changes: Any) -> None:
        super().__init__(*given, archive={"path": "archive"}, **changes)
        self.given: list[Row] = []

    def send(self, events: Iterable[Row], *_: Any, **__: Any) -> None:
        """Put payments into the topic by the schema that the producer has now."""
        chosen = list(events)
        self.given += [event if self.version else event | {"device": None} for event in chosen]
        called = ("", "device", "device_id")[self.version]
        written = [self._renamed(event, called) for event in chosen]
        super().send(written, self.versions[self.version])

    @staticmethod
    def _renamed(event: Row, called: str) -> Row:
        device = {called: event["device"]} if called else {}
        return {name: value for name, value in event.items() if name != "device"} | device

    def written(self, message: Message) -> Row:
        return self.given[message.offset()]

    def write_schema(self, schema: Row) -> None:
        """Write the event schema."""
        (self.root / "schema.yaml").write_text(yaml.safe_dump(schema))

    def rule_ids(self) -> list[str]:
        """The rules that are in force."""
        rule_set = RuleVersions(self.checkpoint).latest_rule_set()
        return [] if rule_set is None else [rule.rule_id for rule in rule_set.rules]


class ChangingAvro(ChangingJob, AvroJob):
    versions = (
        FIELDS,
        [*FIELDS, {"name": "device", "type": ["null", "string"], "default": None}],
        [*FIELDS, {"name": "device_id", "aliases": ["device"], "type": ["null", "string"], "default": None}],
    )


class ChangingProtobuf(ChangingJob, ProtobufJob):
    versions = (
        PLAIN,
        schema_of(added="optional string device = 9;"),
        schema_of(added="optional string device_id = 9;"),
    )


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as url:
        yield url


@pytest.mark.parametrize("kind", [ChangingAvro, ChangingProtobuf])
def test_a_field_that_a_producer_adds_is_used_without_a_restart_as_if_it_had_been_there_from_the_start(
    spark, broker, registry, buckets, tmp_path, kind
):
    events = [event | {"device": f"d{number % 3}"} for number, event in enumerate(payments(300))]
    with kind(broker, tmp_path, registry) as job:
        # The registry knows the schema when the job starts.
        job.values(events[:1], job.versions[0])
        with Running(spark, job) as running:
            job.send(events[:30])
            running.wait_for(30)
            job.version = 1
            job.send(events[30:60])
            running.wait_for(60)
            job.write_rules([*RULES, EVERY, BY_DEVICE])
            job.write_schema(WIDER)
            sent = running.send_one_by_one(events, 60, lambda: "by-device" in job.rule_ids())
            job.send(events[sent : sent + 40])
            running.wait_for(sent + 40)
            job.version = 2
            job.send(events[sent + 40 : sent + 80])
            running.wait_for(sent + 80)
            job.write_schema(BROKEN)
            end = running.send_one_by_one(events, sent + 80, lambda: running.news().schema["fault"] is not None)
        fault = running.news().schema["fault"]
        assert "was made with device as a string attribute, not as a long attribute; go back to that" in fault
        assert f"the event schema stays as it is: {fault}" in running.said
        assert any("the event schema has a field more, device as a string attribute" in line for line in running.said)

        job.write_schema(WIDER)
        job.lose_registry()
        job.send(events[end : end + 20])
        assert sum(report.account.events_in for report in run_to_end(spark, job)) == 20
        job.audit(spark)
        _check_results(job, sent)
        replayed = replay_history(History.open(load_job(job.conf)))
        assert replayed.differences == []
        assert replayed.compared[ALERTS] == len(job.messages(ALERTS))
        alert = [row for row in job.messages(ALERTS) if row["rule_id"] == "by-device"][-1]
        ran = buckets("explain", job.conf, alert["alert_id"], "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["features"][0]["comparison"]["equal"]


def _check_results(job: ChangingJob, used: int) -> None:
    """See that results are those of a job that has had the field and its rule from the first message on.

    Messages from before the field was declared have none in results, and windows that reach back to them are others.

    Args:
        job: one that has run to its end.
        used: the message from which on the field was used.
    """
    newest = RuleVersions(job.checkpoint).latest_rule_set()
    terms = BatchRecords(job.checkpoint).all_terms()
    assert newest is not None
    assert [each.event_schema.version for each in terms.values()] == [1, 2]
    job.job = load_job(job.conf)
    expected = job.replay({(f"{job.topic}[0]", 0): newest.version})
    whole_ms = max(event["t"] for event in job.given[:used]) + WINDOW_MS
    for name in OUTPUTS:
        results = comparable(_chosen(job.messages(name), used, whole_ms))
        assert results == comparable(_chosen(expected[name], used, whole_ms)), name
    alerts = _chosen(expected[ALERTS], used, whole_ms)
    assert {"by-device", "every-payment"} < {row["rule_id"] for row in alerts}
    assert job.messages(DEAD_LETTERS) == []


def _chosen(rows: Iterable[Row], used: int, whole_ms: int) -> Iterator[Row]:
    """Yield the rows of the old rules, and of the new one those whose windows begin after a time."""
    for row in rows:
        if "device" in (row.get("key") or {}) and row["event_time"] <= whole_ms:
            continue
        shown = {name: value for name, value in row.items() if name != "ruleset_version"}
        if isinstance(row.get("event"), dict) and row["position"] < used:
            shown["event"] = {name: value for name, value in row["event"].items() if name != "device"}
        yield shown

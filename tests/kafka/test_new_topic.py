"""A topic that was deleted and created again is noticed, refused, and read from its beginning if somebody says so."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from buckets.archive.history import History
from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.source_offsets import SourceOffsets, records_folder
from buckets.checkpoint.topic_generations import NewTopic, TopicGenerations
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.replay.replay import replay_history
from buckets.kafka.faults import Broker
from buckets.monitor.pace import BatchReport
from buckets.outputs.columns import ALERTS, DEAD_LETTERS
from buckets.spark.audit import AuditListener, AuditQuery, prepare_audit
from buckets.spark.prepared_job import Listener, prepare
from tests.core.checkpoints import written_in
from tests.kafka.audit_job import AuditJob
from tests.kafka.kafka_job import KafkaJob
from tests.kafka.test_scoring import run_to_end
from tests.spark.command import one_line, run_command
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


def payment(number: int, time_ms: int, payer: str = "ann", amount: str = "1.00") -> dict[str, Any]:
    return {"id": f"n{number}", "t": time_ms, "payer": payer, "kind": "CARD", "amount": amount}


def create_again(job: KafkaJob, partitions: int = 1) -> None:
    job.broker.delete(job.topic)
    job.broker.create(job.topic, partitions)


def go_on(spark, job: KafkaJob, said: list[str]) -> list[BatchReport]:
    """Score what is in the topic, as `--new-topic` does."""
    reports: list[BatchReport] = []
    prepare(load_job(job.conf), said.append).query(spark, Listener(reports.append)).run(None)
    return reports


def events_in(reports: list[BatchReport]) -> int:
    return sum(report.account.events_in for report in reports)


def test_a_longer_topic_of_the_same_name_is_refused_and_then_read_from_its_beginning_with_the_state_kept(
    spark, broker, tmp_path, buckets
):
    job = KafkaJob(broker, tmp_path)
    job.send([payment(number, 1_000, amount="20.00") for number in range(3)])
    broker.produce(job.topic, ["{"], ["ann"])
    assert events_in(run_to_end(spark, job)) == 4
    first = TopicGenerations(job.checkpoint).of(job.topic)[-1].topic_id
    create_again(job, partitions=2)
    broker.produce(job.topic, ["{"] * 4, partition=0)
    job.send([payment(number, 1_500, amount="20.00") for number in range(10, 20)])

    said = one_line(run_command("run", job.conf))
    assert said.startswith(f"topic {job.topic} was deleted and created again: checkpoint {job.checkpoint} has read")
    assert first in said
    assert "--new-topic" in said
    ran = buckets("check", job.conf, "--json")
    wrong = {each["thing"]: each["faults"] for each in json.loads(ran.out)["things"] if not each["ok"]}
    assert wrong == {f"topic {job.topic}": [said]}

    lines: list[str] = []
    assert events_in(go_on(spark, job, lines)) == 14
    assert lines == [f"topic {job.topic} was created again, and is read from its beginning with batch 1"]
    alerts = {alert["event_id"]: alert for alert in job.messages(ALERTS) if alert["rule_id"] == "payer-sum"}
    assert alerts["n10"]["value"] == "80.00", "with three payments from the topic before"
    places = {(row["source"], row["position"]) for row in job.messages(DEAD_LETTERS)}
    assert places == {(f"{job.topic}[0]", 3), *((f"{job.topic}#2[0]", offset) for offset in range(4))}
    job.send([payment(30, 2_000)])
    assert events_in(run_to_end(spark, job)) == 1
    assert go_on(spark, job, lines) == []
    assert lines[-1] == "no topic was created again or is gone; --new-topic changes nothing"


def test_a_start_that_dies_while_it_takes_the_new_topic_is_done_again(spark, broker, tmp_path, monkeypatch):
    job = AuditJob(broker, tmp_path, archive={"path": "archive"})
    job.send(payments(20))
    assert events_in(run_to_end(spark, job)) == 20
    job.audit(spark)
    create_again(job)
    job.send([payment(number, 5_000) for number in range(30)])

    def die(*_: object) -> None:
        message = "killed"
        raise MemoryError(message)

    def audit_in_new_topic() -> None:
        AuditQuery(spark, prepare_audit(load_job(job.conf), print), AuditListener()).run(once=True)

    for take in (lambda: go_on(spark, job, []), audit_in_new_topic):
        with monkeypatch.context() as patch:
            patch.setattr(TopicGenerations, "add", die)
            with pytest.raises(MemoryError):
                take()
        take()
    for checkpoint in (job.checkpoint, job.audit_checkpoint):
        assert len(TopicGenerations(checkpoint).of(job.topic)) == 2
    assert len(job.rows(TRANSACTIONS)) == 50
    assert History.open(load_job(job.conf)).archive.end() == 50


def test_a_topic_that_is_created_again_under_the_job_ends_it_before_anything_of_it_is_written(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    job.send(payments(20))
    reports: list[BatchReport] = []
    failures: list[BucketsError] = []
    query = prepare(load_job(job.conf)).query(spark, Listener(reports.append))

    def serve() -> None:
        try:
            query.serve(0)
        except BucketsError as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    scored = threading.Event()
    while events_in(reports) < 20:
        scored.wait(0.05)
    create_again(job)
    job.send([payment(number, 5_000) for number in range(40)])
    thread.join(120)
    assert not thread.is_alive()
    (failure,) = failures
    assert "--new-topic" in failure.message
    assert events_in(reports) == 20
    assert all(not alert["event_id"].startswith("n") for alert in job.messages(ALERTS))

    with pytest.raises(NewTopic):
        prepare(load_job(job.conf))
    lines: list[str] = []
    assert events_in(go_on(spark, job, lines)) == 40
    alerts = [alert for alert in job.messages(ALERTS) if alert["rule_id"] == "every-payment"]
    assert {f"n{number}" for number in range(40)} <= {alert["event_id"] for alert in alerts}


@pytest.mark.parametrize("output", ["kafka", "delta"])
def test_a_batch_that_was_planned_in_the_old_topic_is_given_up_and_told(spark, broker, tmp_path, output):
    changes = {} if output == "kafka" else {"output": {"kind": "delta", "path": "tables"}}
    job = KafkaJob(broker, tmp_path, **changes)
    job.send(payments(10))
    run_to_end(spark, job)
    job.send([payment(number, 4_000) for number in range(6)])

    def fail(report: BatchReport) -> None:
        message = "it does not get further"
        raise BucketsError(message)

    class Unwritten:
        def write(self, batch) -> None:
            fail(batch)

    with pytest.raises(BucketsError, match="does not get further"):
        prepare(load_job(job.conf)).query(spark, Listener(), Unwritten()).run(None)
    assert SourceOffsets(job.checkpoint).unfinished == 1
    create_again(job)
    job.send([payment(number, 5_000) for number in range(20, 32)])
    lines: list[str] = []
    (report,) = go_on(spark, job, lines)
    assert (report.account.batch_id, report.account.events_in) == (1, 12)
    assert lines[0] == (
        "batch 1 had begun and not ended: those of its 6 messages that were in the old topic are gone, and not scored"
    )
    # Nothing of the batch that was given up is in the state.
    job.send([payment(50, 5_500)])
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 1
    counts = [alert["count"] for alert in results(job) if alert["event_id"] == "n50"]
    assert counts == [13]


def results(job: KafkaJob) -> list[dict[str, Any]]:
    """The alerts of the rule that fires at every payment."""
    if job.job.settings.output.kind == "kafka":
        found = job.messages(ALERTS)
    else:
        from buckets.outputs.recorded_outputs import read_output

        found = read_output(Path(job.job.settings.output.path), ALERTS).to_pylist()
    return [alert for alert in found if alert["rule_id"] == "every-payment"]


def test_a_batch_that_is_half_in_its_tables_is_refused(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path, output={"kind": "delta", "path": "tables"})
    job.send(payments(10))

    def fail(*_: Any) -> None:
        message = "it does not get further"
        raise BucketsError(message)

    query = prepare(load_job(job.conf)).query(spark, Listener())
    query._scoring.sink.append_accounts = fail
    with pytest.raises(BucketsError, match="does not get further"):
        query.run(None)
    create_again(job)
    with pytest.raises(
        BucketsError, match=r"batch 0 of checkpoint .* is half written \(alerts, .*name a new checkpoint"
    ):
        prepare(load_job(job.conf), [].append)


def test_a_checkpoint_that_knows_no_ids_of_topics_takes_them_over_at_its_next_start(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    job.send(payments(10))
    run_to_end(spark, job)
    (records_folder(job.checkpoint) / "topics.json").unlink()
    job.send(payments(5, seed=6))
    assert events_in(run_to_end(spark, job)) == 5
    (generation,) = TopicGenerations(job.checkpoint).of(job.topic)
    assert generation.topic_id == Broker(broker.kafka).topic_id(job.topic, 10)


def test_an_audit_refuses_a_new_topic_and_then_keeps_both_and_the_archive_has_both(spark, broker, tmp_path):
    job = AuditJob(broker, tmp_path, trigger={"available_now": True}, archive={"path": "archive"})
    job.send(payments(40))
    run_to_end(spark, job)
    job.audit(spark)
    kept = len(job.rows(ALERTS))
    create_again(job)
    broker.produce(job.topic, ["{"], ["x"])
    job.send([payment(number, 6_000 + number) for number in range(60)])
    with pytest.raises(
        NewTopic, match=f"topic {job.topic} was deleted and created again: checkpoint .*audit-checkpoint"
    ):
        job.audit(spark)
    lines: list[str] = []
    assert events_in(go_on(spark, job, lines)) == 61
    AuditQuery(spark, prepare_audit(load_job(job.conf), lines.append), AuditListener()).run(once=True)
    assert lines[-1] == f"topic {job.topic} was created again, and is read from its beginning with batch 1"

    rows = job.rows(TRANSACTIONS)
    ids = [each.topic_id for each in TopicGenerations(job.checkpoint).of(job.topic)]
    offsets = {topic_id: [row["offset"] for row in rows if row["topic_id"] == topic_id] for topic_id in ids}
    assert offsets == {ids[0]: list(range(40)), ids[1]: list(range(61))}
    assert len(job.rows(ALERTS)) > kept

    history = History.open(load_job(job.conf))
    assert history.archive.end() == 101
    replayed = replay_history(history)
    assert replayed.differences == []
    assert replayed.compared[ALERTS] == len(job.rows(ALERTS))


def test_an_audit_whose_batch_is_half_in_its_tables_loses_nothing_of_other_topics(spark, broker, tmp_path):
    job = AuditJob(broker, tmp_path, trigger={"available_now": True})
    job.send(payments(30))
    run_to_end(spark, job)
    job.audit(spark)
    job.send([payment(number, 6_000 + number) for number in range(20)])
    run_to_end(spark, job)
    query = AuditQuery(spark, prepare_audit(load_job(job.conf)), AuditListener())
    append, written = query._writer._append, threading.Event()

    def only_transactions(name: str, *rest: Any) -> int:
        if name != TRANSACTIONS:
            assert written.wait(60)
            message = "it does not get further"
            raise BucketsError(message)
        repeats = append(name, *rest)
        written.set()
        return repeats

    query._writer._append = only_transactions
    with pytest.raises(BucketsError, match="does not get further"):
        query.run(once=True)
    create_again(job)
    job.send([payment(number, 7_000 + number) for number in range(20, 60)])
    AuditQuery(spark, prepare_audit(load_job(job.conf), [].append), AuditListener()).run(once=True)
    assert [row["offset"] for row in job.rows(TRANSACTIONS)].count(0) == 2
    assert len(job.rows(TRANSACTIONS)) == 50 + 40
    assert len(job.rows(ALERTS)) == len(job.first_of_each(ALERTS))


def test_state_that_is_carried_over_knows_its_topic(spark, broker, tmp_path):
    from buckets.spark.state_carry import export_state, import_state, plan_of

    job = KafkaJob(broker, tmp_path / "job")
    job.send(payments(20))
    run_to_end(spark, job)
    export_state(spark, job.checkpoint, tmp_path / "export", lambda line: None)
    job.conf.write_text(job.conf.read_text().replace("checkpoint: checkpoint", "checkpoint: second"))
    moved = load_job(job.conf)
    import_state(spark, tmp_path / "export", moved, plan_of(tmp_path / "export", moved), lambda line: None)
    create_again(job)
    job.send(payments(30, seed=6))
    with pytest.raises(NewTopic, match="second"):
        prepare(moved)
    lines: list[str] = []
    assert events_in(go_on(spark, job, lines)) == len(payments(30, seed=6))
    second = written_in(tmp_path / "job" / "second" / "buckets" / "topics.json")
    assert len(second["topics"][job.topic]) == 2

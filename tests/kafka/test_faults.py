"""What people meet when Kafka is not as the configuration says: one line each, with the remedy."""

import pytest
import yaml

from buckets.kafka.local_broker import free_port
from tests.kafka.kafka_job import KafkaJob
from tests.spark.command import RunningCommand, one_line, run_command
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


def change(job: KafkaJob, **parts) -> None:
    conf = yaml.safe_load(job.conf.read_text())
    job.conf.write_text(yaml.safe_dump(conf | parts))


def test_no_broker_is_one_line(broker, tmp_path):
    job, port = KafkaJob(broker, tmp_path), free_port()
    change(job, kafka={"bootstrap_servers": f"localhost:{port}"})
    said = one_line(run_command("run", job.conf))
    assert said.startswith(f"kafka localhost:{port}: no broker answers")
    assert "buckets kafka start" in said
    assert not job.checkpoint.exists()


def test_no_topic_is_one_line(broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    change(job, source={"kind": "kafka", "topic": "nowhere"})
    said = one_line(run_command("run", job.conf))
    assert "there is no topic nowhere; `buckets kafka topics CONF` creates" in said


def test_no_output_topic_is_one_line(broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    change(job, output={"kind": "kafka", "topics": {"alerts": "nowhere"}})
    assert "there is no topic nowhere, shadow_alerts" in one_line(run_command("run", job.conf))


def test_a_checkpoint_of_another_topic_is_one_line(spark, broker, tmp_path):
    job, other = KafkaJob(broker, tmp_path / "one"), KafkaJob(broker, tmp_path / "other")
    job.send(payments(5))
    assert run_command("run", job.conf).returncode == 0
    change(other, checkpoint=str(job.checkpoint))
    said = one_line(run_command("run", other.conf))
    assert f"was made for source kafka {job.topic}, not kafka {other.topic}" in said


def test_a_topic_that_is_deleted_under_the_job_is_one_line(broker, tmp_path):
    job = KafkaJob(broker, tmp_path, trigger={"interval": "100ms"})
    job.send(payments(20))
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: bool(job.messages("alerts")), 0.5)
        broker.delete(job.topic)
        assert command.wait() == 1
        said = command.stderr.splitlines()[-1]
    assert said.startswith(f"error: kafka {broker.kafka.bootstrap_servers}: ")
    assert "Traceback" not in command.stderr
    assert any(word in said for word in ("has been deleted", "no longer in the topic", "there is no topic"))


def test_a_topic_made_anew_under_its_name_is_one_line_and_nothing_is_skipped(broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    job.send(payments(20))
    assert run_command("run", job.conf).returncode == 0
    broker.delete(job.topic)
    broker.create(job.topic)
    job.send(payments(5))
    assert "name a new checkpoint" in one_line(run_command("run", job.conf)).lower()


@pytest.mark.nightly
def test_a_broker_that_is_away_for_longer_than_one_waits_is_one_line(own_broker, tmp_path):
    broker = own_broker()
    kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers, "outage_patience": "3s"}
    job = KafkaJob(broker, tmp_path, kafka=kafka, trigger={"interval": "100ms"})
    job.send(payments(20))
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: bool(job.messages("alerts")), 0.5)
        broker.kill()
        assert command.wait() == 1
        said = command.stderr.splitlines()[-1]
    assert "no broker answers" in said


def test_a_password_is_never_shown(broker, tmp_path, monkeypatch):
    monkeypatch.setenv("SCORING_PASSWORD", "open-sesame")
    job = KafkaJob(broker, tmp_path)
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": "${SCORING_PASSWORD}"}
    change(job, kafka={"bootstrap_servers": broker.kafka.bootstrap_servers, "security": security})
    ran = run_command("run", job.conf)
    assert ran.returncode == 1
    assert "open-sesame" not in ran.stdout + ran.stderr

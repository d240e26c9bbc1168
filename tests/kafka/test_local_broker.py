"""The local broker: it starts, stops, survives being killed, and says in one line why it cannot start."""

import os
import re
import socket
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from buckets.config.job import load_job
from buckets.config.kafka import KafkaSettings, SecuritySettings
from buckets.errors import BucketsError, Outage
from buckets.kafka.faults import Broker, client_settings
from buckets.kafka.local_broker import BrokerStatus, LocalBroker
from buckets.kafka.topics import create_topics, topic_sizes
from buckets.outputs.columns import EVALUATIONS, TOPICS
from tests.kafka.broker import TestBroker, free_port
from tests.kafka.topic_reader import TopicReader
from tests.spark.command import one_line, run_command
from tests.spark.payments import RULES, SCHEMA


def values(broker: TestBroker, topic: str) -> list[bytes]:
    return [message.value() for message in broker.read(topic)]


def log_in(broker: TestBroker, username: str, password: str) -> KafkaSettings:
    login = {"mechanism": "PLAIN", "username": username, "password": SecretStr(password)}
    security = SecuritySettings.model_validate({"protocol": "SASL_PLAINTEXT", **login})
    return broker.kafka.model_copy(update={"security": security})


def write_conf(folder: Path, broker: TestBroker, prefix: str, rules_topic: bool = True) -> Path:
    """A configuration from topics to topics, all with a prefix to their names."""
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    conf = {
        "source": {"kind": "kafka", "topic": f"{prefix}-events"},
        "schema": "schema.yaml",
        "rules": {"topic": f"{prefix}-rules"} if rules_topic else "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {
            "kind": "kafka",
            "topics": {name: f"{prefix}-{name}" for name in TOPICS if name != EVALUATIONS},
        },
        "kafka": {"bootstrap_servers": broker.kafka.bootstrap_servers},
    }
    path = folder / "conf.yaml"
    path.write_text(yaml.safe_dump(conf))
    return path


# --- its life -----------------------------------------------------------------------------------------------


def test_what_was_written_is_there_after_a_stop_and_a_start(own_broker):
    broker = own_broker()
    broker.create("kept", partitions=2)
    broker.produce("kept", ["a", "b"], ["1", "2"], partition=1)

    assert broker.local.stop()
    assert broker.local.start()

    assert broker.topics() == {"kept": 2}
    assert [(each.partition(), each.offset(), each.key(), each.value()) for each in broker.read("kept")] == [
        (1, 0, b"1", b"a"),
        (1, 1, b"2", b"b"),
    ]


def test_what_was_acknowledged_is_there_after_a_kill_and_a_start(own_broker):
    broker = own_broker()
    broker.create("kept")
    broker.produce("kept", ["a", "b"])

    broker.kill()
    assert broker.local.status().pid is None
    broker.start()
    broker.produce("kept", ["c"])

    assert values(broker, "kept") == [b"a", b"b", b"c"]


def test_status_tells_running_stopped_and_never_started_apart(own_broker, tmp_path):
    assert LocalBroker(tmp_path / "none").status() == BrokerStatus(pid=None, address=None)
    assert not (tmp_path / "none").exists()

    broker = own_broker()
    status = broker.local.status()
    assert status.pid is not None
    assert status.address == broker.kafka.bootstrap_servers

    broker.stop()
    assert broker.local.status() == BrokerStatus(pid=None, address=status.address)


def test_starting_and_stopping_twice_changes_nothing(own_broker):
    broker = own_broker()
    before = broker.local.status()

    assert not broker.local.start()
    assert broker.local.status() == before
    assert broker.local.stop()
    assert not broker.local.stop()
    assert not broker.local.kill()


def test_any_object_for_the_folder_can_stop_it(own_broker):
    broker = own_broker()

    assert LocalBroker(broker.local.folder).stop()
    assert broker.local.status().pid is None


def test_a_pid_that_another_process_has_now_is_left_alone(own_broker):
    broker = own_broker()
    broker.kill()
    (broker.local.folder / "broker.pid").write_text(f"{os.getpid()}\n")

    assert broker.local.status().pid is None
    assert not broker.local.stop()
    assert broker.local.start()


def test_a_folder_that_was_prepared_half_way_is_prepared_again(own_broker, tmp_path):
    half = tmp_path / "broker-0"
    (half / "data").mkdir(parents=True)
    (half / "data" / "bootstrap.checkpoint").write_bytes(b"half")
    (half / "server.properties").write_text("node.id=1\n")

    broker = own_broker(folder=half)
    broker.create("kept")

    assert broker.topics() == {"kept": 1}


def test_a_broker_that_runs_at_another_port_is_not_taken_for_this_one(own_broker, as_worded):
    broker = own_broker()
    port = free_port()

    with pytest.raises(BucketsError, check=as_worded):
        LocalBroker(broker.local.folder, port).start()
    assert broker.local.status().pid is not None


# --- why it cannot start ------------------------------------------------------------------------------------


def test_a_port_that_somebody_has_is_said_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_command("kafka", "start", "--dir", tmp_path / "broker", "--port", port)

    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(rf"error: port {port} of 127\.0\.0\.1 cannot be used \(.*\); stop .* --port\n", done.stderr)


def test_a_folder_with_other_things_is_left_alone(tmp_path, as_worded):
    (tmp_path / "thesis.txt").write_text("mine")

    with pytest.raises(BucketsError, check=as_worded):
        LocalBroker(tmp_path, free_port()).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_kafka_that_ends_at_once_gives_its_reason(own_broker):
    broker = own_broker()
    broker.stop()
    meta = broker.local.folder / "data" / "meta.properties"
    meta.write_text(re.sub("node.id=.*", "node.id=7", meta.read_text()))

    with pytest.raises(
        BucketsError, match=r"Kafka ended while it started: Stored node id 7 doesn't match .*details: .*broker\.log"
    ):
        broker.start()
    assert broker.local.status().pid is None


# --- logins -------------------------------------------------------------------------------------------------


def test_a_user_gets_in_and_a_wrong_password_is_explained_in_one_line(own_broker):
    broker = own_broker(users={"ada": 'a "quoted" pass\\word é', "bob": "simple"})
    broker.create("secrets")
    broker.produce("secrets", ["a"])

    assert values(broker, "secrets") == [b"a"]
    assert Broker(log_in(broker, "bob", "simple")).partitions()["secrets"] == 1
    with pytest.raises(BucketsError, match=r"the login is refused; correct username, password") as refused:
        Broker(log_in(broker, "bob", "wrong")).partitions()
    assert not isinstance(refused.value, Outage)
    assert "\n" not in refused.value.message
    assert "wrong" not in refused.value.message


# --- topics -------------------------------------------------------------------------------------------------


def test_topics_of_a_configuration_are_made_once(broker, tmp_path):
    job = load_job(write_conf(tmp_path, broker, "once"))
    kafka = job.settings.kafka
    assert kafka is not None
    wide = ("events", *(name for name in TOPICS if name != EVALUATIONS))
    narrow = ("rules", "rules_rejected", "rules_export")
    wanted = {f"once-{name}": 3 for name in wide} | {f"once-{name}": 1 for name in narrow}
    broker.create("once-alerts", partitions=3)

    made = create_topics(kafka, job, partitions=3)

    assert sorted(made) == sorted(set(wanted) - {"once-alerts"})
    assert {name: count for name, count in broker.topics().items() if name.startswith("once-")} == wanted
    assert create_topics(kafka, job, partitions=5) == []
    assert broker.topics()["once-events"] == 3


def test_only_the_topic_of_rules_is_compacted(broker, tmp_path):
    job = load_job(write_conf(tmp_path, broker, "compacted"))
    create_topics(broker.kafka, job, partitions=1)

    assert broker.config("compacted-rules")["cleanup.policy"] == "compact"
    assert broker.config("compacted-events")["cleanup.policy"] == "delete"
    assert broker.config("compacted-rules_rejected")["cleanup.policy"] == "delete"


def test_sizes_are_messages_over_all_partitions(broker):
    broker.create("sized", partitions=2)
    broker.produce("sized", ["a", "b", "c"], partition=0)
    broker.produce("sized", ["d"], partition=1)

    assert ("sized", 2, 4) in topic_sizes(broker.kafka)


def test_topics_can_be_read_the_moment_they_are_there(broker):
    """A broker shows a topic before it can tell of its messages; one try in seven met that."""
    admin, brokers = AdminClient(client_settings(broker.kafka)), Broker(broker.kafka)
    for number in range(40):
        topics = [f"new-{number}-{name}" for name in "abcde"]
        made = admin.create_topics([NewTopic(topic, 4) for topic in topics], operation_timeout=10)
        for future in made.values():
            future.result()
        while not set(topics) <= set(brokers.partitions()):
            pass
        with TopicReader(broker.kafka, topics, from_end=True) as reader:
            assert reader.poll(0) == []


# --- commands -----------------------------------------------------------------------------------------------


def test_a_broker_from_start_to_stop_on_the_command_line(tmp_path, as_worded):
    folder, port = tmp_path / "my broker, mine", free_port()
    try:
        started = run_command("kafka", "start", "--dir", folder, "--port", port)
        again = run_command("kafka", "start", "--dir", folder, "--port", port)
        empty = run_command("kafka", "status", "--dir", folder)
        broker = TestBroker(folder, port)
        broker.create("shown", partitions=3)
        broker.produce("shown", ["a"] * 1234)
        full = run_command("kafka", "status", "--dir", folder)
        stopped = run_command("kafka", "stop", "--dir", folder)
        after = run_command("kafka", "status", "--dir", folder)
        twice = run_command("kafka", "stop", "--dir", folder)
    finally:
        LocalBroker(folder).kill()

    assert [each.returncode for each in (started, again, empty, full, stopped, twice)] == [0] * 6, started.stderr
    assert started.stdout.startswith(f"Kafka runs at 127.0.0.1:{port}, process ")
    assert again.stdout.startswith(f"Kafka already runs at 127.0.0.1:{port}, process ")
    assert "it has no topics" in empty.stdout
    assert re.search(r"shown\W+3\W+1,234\W", full.stdout)
    assert stopped.stdout == f"Kafka in {folder} is stopped\n"
    assert as_worded(one_line(after))
    assert twice.stdout == f"no Kafka runs in {folder}\n"


def test_topics_command_says_what_it_made_and_what_was_there(broker, tmp_path):
    conf = write_conf(tmp_path, broker, "said", rules_topic=False)

    first = run_command("kafka", "topics", conf, "--partitions", 2)
    second = run_command("kafka", "topics", conf, "--partitions", 2)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.startswith("made said-events, said-alerts")
    assert first.stdout.endswith("; none was there before\n")
    assert second.stdout == "nothing to make, all 8 topics are there\n"


def test_topics_of_a_configuration_without_kafka_is_one_line(tmp_path, broker, as_worded):
    conf = write_conf(tmp_path, broker, "without", rules_topic=False)
    (tmp_path / "source").mkdir()
    changed = yaml.safe_load(conf.read_text()) | {"source": {"kind": "json", "path": "source"}, "kafka": None}
    conf.write_text(yaml.safe_dump(changed | {"output": {"path": "tables"}}))

    done = run_command("kafka", "topics", conf)

    assert as_worded(one_line(done))


def test_topics_on_brokers_that_do_not_answer_is_one_line(tmp_path, broker):
    conf = write_conf(tmp_path, broker, "away", rules_topic=False)
    port = free_port()
    changed = yaml.safe_load(conf.read_text()) | {"kafka": {"bootstrap_servers": f"127.0.0.1:{port}"}}
    conf.write_text(yaml.safe_dump(changed))

    done = run_command("kafka", "topics", conf)

    assert one_line(done).startswith(f"kafka 127.0.0.1:{port}: no broker answers (")

"""A real job under a real Prometheus: each alert fires when its fault is made, and none otherwise."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from buckets.config.job import load_job
from buckets.kafka.local_broker import free_port
from buckets.kafka.topics import create_topics
from buckets.resources import resource
from tests.kafka.kafka_job import EVERY, KafkaJob
from tests.prometheus import Prometheus, get, wait_until
from tests.spark.command import RunningCommand
from tests.spark.payments import payments

pytestmark = pytest.mark.spark

SHORTER = {"5m": "2s", "> 600": "> 10", "> 100000": "> 100", "> 0.01": "> 0.2", "> 5": "> 86400"}
"""The limits of the rules, so short that a test can wait for them; no delay is too long on a busy machine."""


class WatchedJob:
    """A job that answers Prometheus; its rules are in a topic, and a batch has at most twenty messages."""

    def __init__(self, broker, root: Path) -> None:
        self.job = KafkaJob(broker, root, partitions=2)
        self.rules = self.job.topic.replace("payments", "rules")
        self.target = f"127.0.0.1:{free_port()}"
        conf = yaml.safe_load(self.job.conf.read_text()) | {
            "rules": {"topic": self.rules},
            "trigger": {"interval": "0ms"},
            "metrics": {"port": int(self.target.rpartition(":")[2]), "ready_lag": 100},
        }
        conf["source"]["max_offsets_per_trigger"] = 20
        self.job.conf.write_text(yaml.safe_dump(conf))
        self.broker = broker
        self.make_rules()

    def make_rules(self) -> None:
        """Make the topic of rules, with a rule."""
        create_topics(self.broker.kafka, load_job(self.job.conf), 2)
        change = {"change": "put", "rule": EVERY}
        self.broker.produce(self.rules, [json.dumps(change)], [EVERY["rule_id"]])

    def readiness(self) -> tuple[int, str]:
        """Whether it is ready, and why not."""
        code, text = get(f"http://{self.target}/readyz")
        return code, json.loads(text)["reason"] if text.startswith("{") else text


def java_of(running: RunningCommand) -> int:
    """The JVM of a job."""
    (java,) = [pid for pid in running.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    return java


def test_each_alert_fires_of_its_fault_and_none_without(broker, tmp_path):
    watched = WatchedJob(broker, tmp_path / "job")
    watched.job.send(payments(20))
    rules = resource("metrics/alert_rules.yaml").read_text(encoding="utf-8")
    for usual, shorter in SHORTER.items():
        assert usual in rules
        rules = rules.replace(usual, shorter)
    prometheus = Prometheus(tmp_path / "prometheus", watched.target, rules)
    with RunningCommand("run", watched.job.conf, "--log-format", "json", log=tmp_path / "log") as running:
        running.wait_until(lambda: watched.readiness()[0] == 200, every_s=0.2)
        with prometheus:

            def comes_to(*alerts: str, also: Callable[[], bool] = lambda: True) -> None:
                seen: list[set[str]] = []

                def is_so() -> bool:
                    seen.append(prometheus.firing())
                    return seen[-1] == {*alerts} and also()

                wait_until(is_so, lambda: f"{seen[-1]}, {watched.readiness()}\n{running.stderr}")
                assert set().union(*seen) <= {*alerts} | seen[0], f"others fired too\n{running.stderr}"

            comes_to(also=lambda: prometheus.value("buckets_events_total") == 20)
            comes_to(also=lambda: prometheus.value("sum(buckets_source_lag_messages)") == 0)
            assert prometheus.faults() == []

            broker.produce(watched.job.topic, ["{"] * 5)
            comes_to("BucketsDeadLetters")
            comes_to()

            broker.produce(watched.rules, ["{"], ["no-rule"])
            watched.job.send(payments(1))
            comes_to("BucketsRuleChangeRefused")
            comes_to()

            broker.delete(watched.rules)
            comes_to("BucketsRulesNotFollowed", also=lambda: watched.readiness()[0] == 503)
            assert f"topic {watched.rules} is not followed" in watched.readiness()[1]
            watched.make_rules()
            comes_to()

            java = java_of(running)
            os.kill(java, signal.SIGSTOP)
            comes_to("BucketsSilent")
            os.kill(java, signal.SIGCONT)
            comes_to()

            watched.job.send(payments(2_000))
            comes_to("BucketsBehind", also=lambda: "behind, more than" in watched.readiness()[1])
            lags = 'count(buckets_source_lag_messages{partition=~"0|1"})'
            assert prometheus.value(lags) == 2
            running.interrupt()
            comes_to("BucketsDown")
    said = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"warning"} == {line["level"] for line in said if "is not followed" in line["message"]}

"""A job on Kafka for the benchmarks of what happens live: its broker, its configuration, and the engine as a process.

Payments of 10,000 payers; half of them have a history of 30 days. Ten rules over windows of 5 minutes to 30 days, of
which one fires at every payment, so that every payment has an alert by which its delay is seen.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml
from measure import HERE, ROOT

from buckets.config.job import Job, load_job
from buckets.config.kafka import KafkaSettings
from buckets.kafka.local_broker import LocalBroker, free_port
from buckets.kafka.sender import paced_produce
from buckets.kafka.topics import create_topics

KEYS = 10_000
HISTORY_EVENTS = 100_000
HISTORY_MS = 30 * 86_400_000
WINDOWS = ("5m", "15m", "1h", "3h", "6h", "12h", "24h", "3d", "7d", "30d")
EVERY = "every-payment"
SCHEMA = {
    "name": "payment",
    "event_id": "id",
    "event_time": {"field": "at", "unit": "ms"},
    "attributes": {"payerId": "string", "beneficiaryId": "string"},
    "measures": {"amount": {"scale": 2}},
}
PATIENCE_S = 180.0


def rule(rule_id: str, window: str, **changes: Any) -> dict[str, Any]:
    """A rule that does not fire, unless the changes make it."""
    return {
        "rule_id": rule_id,
        "group_by": ["payerId"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": window},
        "limit": {"operator": ">", "value": "1000000000"},
    } | changes


def ten_rules(groups: int = 1) -> list[dict[str, Any]]:
    """Ten rules in so many groups, into each of which every payment falls; the first fires at every payment.

    Of more groups than ten each has one rule.
    """
    first = rule(EVERY, WINDOWS[0], aggregate={"function": "count"}, limit={"operator": ">=", "value": "1"})
    functions = ("sum", "avg", "max", "min")
    others = [
        rule(f"payer-{index}-{window}", window, aggregate={"function": functions[index % 4], "measure": "amount"})
        for index, window in enumerate(islice(cycle(WINDOWS[1:]), max(10, groups) - 1))
    ]
    for each in others:
        if each["aggregate"]["function"] == "min":
            each["limit"] = {"operator": "<", "value": "0"}
    rules = [first, *others]
    if groups > 1:
        for number, each in enumerate(rules):
            each["where"] = {"amount": {">": f"-{number % groups + 1}"}}
    return rules


def payment(number: int, payer: int, at_ms: int) -> tuple[str, bytes]:
    """A payment as a message."""
    name = f"p{payer:06d}"
    value = {"id": f"e{number}", "at": at_ms, "payerId": name, "beneficiaryId": f"b{number % 997}", "amount": "12.34"}
    return name, json.dumps(value).encode()


def history() -> Iterator[tuple[str, bytes]]:
    """Payments of half of the payers over the last 30 days, in the order of their times."""
    dice, now_ms = random.Random(1), time.time_ns() // 1_000_000
    first_ms = now_ms - HISTORY_MS
    step_ms = (HISTORY_MS - 3_600_000) // HISTORY_EVENTS
    for number in range(HISTORY_EVENTS):
        yield payment(number, dice.randrange(KEYS // 2), first_ms + number * step_ms)


@dataclass
class Engine:
    """The product as a process: `latency_engine.py`."""

    process: subprocess.Popen[str]
    batches: list[dict[str, Any]] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events so far."""
        return sum(batch["events"] for batch in list(self.batches))

    def follow(self) -> None:
        """Take down what it prints; runs in a thread."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches.append(json.loads(line))

    def wait_for(self, events: int) -> None:
        """Wait until so many events have been scored."""
        ends_s = time.monotonic() + PATIENCE_S
        while self.events < events:
            if self.process.poll() is not None or time.monotonic() > ends_s:
                sys.exit(f"the engine has scored {self.events:,} of {events:,} events, and is not expected to go on")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)


@dataclass(frozen=True)
class LiveJob:
    """A job with its broker.

    Attributes:
        job: the configuration, loaded.
        conf: its file.
        kafka: how the broker is reached.
    """

    job: Job
    conf: Path
    kafka: KafkaSettings

    @contextmanager
    def engine(self, root: Path = ROOT) -> Iterator[Engine]:
        """The engine, running; that of another checkout, which has been set up, if `root` is one."""
        python = sys.executable if root == ROOT else str(root / ".venv" / "bin" / "python")
        path = f"{root}{os.pathsep}{root / HERE.name}"
        environment = os.environ | {"PYSPARK_PYTHON": python, "PYTHONPATH": path}
        command = [python, str(root / HERE.name / "latency_engine.py"), str(self.conf)]
        said = self.conf.with_name("engine.log").open("w")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment, cwd=root)
        engine = Engine(process)
        thread = threading.Thread(target=engine.follow, daemon=True)
        thread.start()
        try:
            yield engine
        finally:
            if process.poll() is None:
                engine.stop()
            thread.join()
            said.close()

    def producer(self, rate: int, seconds: float) -> subprocess.Popen[str]:
        """The producer, running: `paced.py`, which prints in the end how many payments it has sent."""
        command = [sys.executable, str(HERE / "paced.py"), self.kafka.bootstrap_servers, "transactions"]
        return subprocess.Popen([*command, str(rate), str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def send_history(self) -> int:
        """Send the history, as fast as it goes."""
        assert self.job.settings.source.topic is not None
        return paced_produce(self.kafka, self.job.settings.source.topic, history(), rate=1_000_000)


@contextmanager
def live_job(
    rule_file: Sequence[dict[str, Any]],
    spark: dict[str, Any],
    partitions: int = 1,
    schema: Mapping[str, Any] = SCHEMA,
    **more: Any,
) -> Iterator[LiveJob]:
    """A broker and a configuration in a folder of their own, both gone afterwards.

    Args:
        rule_file: the rules, in a file; where the rules come from elsewhere, none.
        spark: settings of Spark that differ from the product's.
        partitions: of the topic of transactions.
        schema: the event schema.
        more: further parts of the configuration, over those here.
    """
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        folder, port = Path(work), free_port()
        conf = {
            "kafka": {"bootstrap_servers": f"localhost:{port}"},
            "source": {"kind": "kafka", "topic": "transactions", "max_offsets_per_trigger": 100_000},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"kind": "kafka"},
            "trigger": {"interval": "0ms"},
            "partitions": 1,
            "engine": {"shards": 1},
            "spark": {"spark.sql.streaming.numRecentProgressUpdates": 100_000} | spark,
        } | more
        for name, content in (("schema", dict(schema)), ("rules", {"rules": list(rule_file)}), ("conf", conf)):
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        broker = LocalBroker(folder / "broker", port)
        broker.start()
        try:
            job = load_job(folder / "conf.yaml")
            assert job.settings.kafka is not None
            create_topics(job.settings.kafka, job, partitions)
            yield LiveJob(job, folder / "conf.yaml", job.settings.kafka)
        finally:
            broker.stop()

"""`buckets serve` beside a job: calls of it, and what the job itself has put out for the same payments."""

import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from buckets.config.job import load_job
from buckets.outputs import columns
from tests.kafka.kafka_job import KafkaJob, Row
from tests.spark.command import RunningCommand

LOOK_EVERY_S = 0.1
CALL_WITHIN_S = 60.0
FURTHEST = ("evaluated", "collision", "late", "too_late", "duplicate", "dead_letter")
Place = tuple[str, int]  # A source, as results name it, and a position in it


class Reply(NamedTuple):
    """What a request was answered."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def value(self) -> Any:
        """Its JSON."""
        return json.loads(self.text)


class Served(RunningCommand):
    """`buckets serve` as a process."""

    def __init__(self, conf: Path, log: Path, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        """Say for which job, where it logs, and how it is called."""
        super().__init__("serve", conf, log=log)
        self.port = load_job(conf).settings.serve.port
        self._tls, self._own = tls, {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, path: str, body: bytes | None = None, method: str | None = None, **headers: str) -> Reply:
        """Send a request by a connection of its own."""
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_WITHIN_S)
            if self._tls is None
            else http.client.HTTPSConnection("127.0.0.1", self.port, timeout=CALL_WITHIN_S, context=self._tls)
        )
        given = self._own | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, given)
            response = connection.getresponse()
            text = response.read().decode()
            return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
        finally:
            connection.close()

    def score(self, payments: Row | Sequence[Row], features: str | None = "*", mode: str = "score") -> Reply:
        """Call about a payment, or several at once."""
        asked = f"/v1/score?mode={mode}" + ("" if features is None else f"&features={features}")
        return self.ask(asked, json.dumps(payments).encode())

    def check(self, payments: Row | Sequence[Row], features: str | None = "*") -> Reply:
        """Ask what would come out."""
        return self.score(payments, features, "check")

    @property
    def not_ready(self) -> str | None:
        """Why it is not ready; None if it is."""
        try:
            reply = self.ask("/readyz")
        except OSError as error:
            return str(error)
        return None if reply.status == 200 else reply.value["detail"]

    def wait_until_ready(self) -> None:
        """Wait until its answers are those of the job."""
        self.wait_until(lambda: self.not_ready is None, LOOK_EVERY_S)

    def metric(self, name: str, labels: str = "") -> float:
        """A number that it tells; 0 if it does not."""
        lines = self.ask("/metrics").text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"buckets_serve_{name}{labels} ")), 0)

    def wait_for_batch(self, number: int) -> None:
        """Wait until it knows of a batch of the job."""
        self.wait_until(lambda: self.metric("batch") >= number, LOOK_EVERY_S)


def served_otherwise(job: KafkaJob, name: str, **serve: Any) -> Path:
    """Write another configuration of the same job, by which it is served otherwise."""
    settings = yaml.safe_load(job.conf.read_text())
    settings["serve"] = settings.get("serve", {}) | serve
    conf = job.root / f"{name}.yaml"
    conf.write_text(yaml.safe_dump(settings))
    return conf


@dataclass
class Said:
    """What was said of a payment."""

    version: int | None = None
    outcome: str = "evaluated"
    reason: str | None = None
    alerts: dict[str, Row] = field(default_factory=dict)
    held: dict[str, Row] = field(default_factory=dict)
    features: dict[str, tuple[Any, bool, bool]] = field(default_factory=dict)


def said_by_job(job: KafkaJob) -> dict[Place, Said]:
    """What the topics of a job say, by payment."""
    found: dict[Place, Said] = {}
    for output in columns.TOPICS:
        for row in job.messages(output):
            said = found.setdefault((row["source"], row["position"]), Said())
            said.version = row.get("ruleset_version", said.version)
            if output in (columns.ALERTS, columns.HELD_ALERTS):
                (said.alerts if output == columns.ALERTS else said.held)[row["alert_id"]] = _timeless(row)
            elif output == columns.EVALUATIONS:
                said.features |= _features(row)
            elif (outcome := _outcome(output, row)) is not None:
                said.outcome = max(said.outcome, outcome, key=FURTHEST.index)
                said.reason = row.get("reason")
    return found


def _outcome(output: str, row: Row) -> str | None:
    if output == columns.LATE_EVENTS:
        return "too_late" if row["too_late"] else "late"
    if output == columns.COLLISIONS:
        return None if row["kept"] else "collision"
    return {columns.DUPLICATES: "duplicate", columns.DEAD_LETTERS: "dead_letter"}.get(output)


def _features(row: Row) -> dict[str, tuple[Any, bool, bool]]:
    if row.get("terms") is None:
        return {f"{row['rule_id']}.value": (_number(row["value"]), row["exact"], row["warm"])}
    return {
        f"{row['rule_id']}.{term['name']}": (_number(term["value"]), term["exact"], term.get("warm", row["warm"]))
        for term in row["terms"]
    }


def said_in_answer(answer: Row, topic: str) -> tuple[Place, Said]:
    """What an answer says, and of which payment."""
    names = {name: (_number(of["value"]), of["exact"], of["warm"]) for name, of in answer.get("features", {}).items()}
    alerts = {alert["alert_id"]: _timeless(alert) for alert in answer["alerts"]}
    said = Said(answer["ruleset_version"], answer["outcome"], None, alerts, {}, names)
    return (f"{topic}[{answer['partition']}]", answer["offset"]), said


def _timeless(alert: Row) -> Row:
    """An alert without when it was decided, which each decides for itself."""
    return {name: value for name, value in alert.items() if name != "decided_at"}


def _number(value: Any) -> Any:
    if value is None or isinstance(value, bool) or value in ("true", "false"):
        return {"true": True, "false": False}.get(value, value)
    return Decimal(str(value))


def wait_until(reached: Any, what: str, within_s: float = CALL_WITHIN_S) -> None:
    """Wait for what no process of its own is asked for."""
    ends_s = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < ends_s, what
        time.sleep(LOOK_EVERY_S)

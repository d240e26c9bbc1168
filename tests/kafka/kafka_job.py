"""A job from topics to topics on the tests' broker, its payments, and what the core makes of the same arrivals."""

import itertools
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Message

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, load_job
from buckets.events.arrivals import POSITION, SOURCE, SOURCE_ORDER
from buckets.kafka.topics import create_topics
from buckets.outputs import columns
from tests.core.pipeline import Pipeline
from tests.core.real_messages import messages_of
from tests.kafka.broker import TestBroker
from tests.spark.payments import RULES, SCHEMA

Row = dict[str, Any]
EVERY = {
    "rule_id": "every-payment",
    "group_by": ["payer"],
    "aggregate": {"function": "count"},
    "window": {"length": "1s"},
    "limit": {"operator": ">=", "value": "1"},
}
"""A rule that fires at every payment that is on time, and so says under which version each was evaluated."""


class KafkaJob:
    """A folder with a configuration, and topics of its own."""

    def __init__(
        self,
        broker: TestBroker,
        root: Path,
        partitions: int = 1,
        evaluations: bool = False,
        tasks: int = 1,
        **changes: Any,
    ) -> None:
        """Write the folder and create the topics.

        Args:
            broker: where topics are.
            root: the folder.
            partitions: of the topics of payments and of results.
            evaluations: whether every evaluation is put out.
            tasks: `partitions` of the configuration.
            changes: go over the parts of the configuration.
        """
        self.broker = broker
        self.root = root
        self.checkpoint = root / "checkpoint"
        name = uuid.uuid4().hex[:8]
        self.topic = f"payments-{name}"
        root.mkdir(parents=True, exist_ok=True)
        self.write_rules([*RULES, EVERY])
        (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
        topics = {each: f"{each}-{name}" for each in columns.TOPICS}
        conf = {
            "kafka": {"bootstrap_servers": broker.kafka.bootstrap_servers},
            "source": {"kind": "kafka", "topic": self.topic},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"kind": "kafka", "topics": topics, "evaluations": evaluations},
            "engine": {"shards": 4, "allowed_lateness": "100ms"},
            "partitions": tasks,
        } | changes
        self.conf = root / "conf.yaml"
        self.conf.write_text(yaml.safe_dump(conf))
        self.job: Job = load_job(self.conf)
        create_topics(broker.kafka, self.job, partitions)

    def write_rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Write the rule file, whole at once."""
        partial = self.root / "rules.yaml.partial"
        partial.write_text(yaml.safe_dump({"rules": [dict(rule) for rule in rules]}))
        partial.replace(self.root / "rules.yaml")

    def send(self, events: Iterable[Row]) -> None:
        """Put payments into the topic, each payer's into one partition."""
        chosen = list(events)
        self.broker.produce(self.topic, [json.dumps(event) for event in chosen], [event["payer"] for event in chosen])

    def written(self, message: Message) -> Row:
        """A payment as the test has written it."""
        return json.loads(message.value())

    def messages(self, output: str) -> list[Row]:
        """The values in the topic of an output, repeats dropped by their id."""
        found = [json.loads(message.value()) for message in self.broker.read(self.job.settings.output.topic(output))]
        return list({each.get("alert_id") or each["id"]: each for each in found}.values())

    def evaluated_under(self) -> dict[tuple[str, int], int]:
        """The version of the rules under which each payment was evaluated, by its position.

        A payment that is late for one group may be on time for another, so all outputs that name a version count.
        """
        rows = (row for name in columns.TOPICS for row in self.messages(name))
        return {(row["source"], row["position"]): row["ruleset_version"] for row in rows if "ruleset_version" in row}

    def replay(self, version_of: Mapping[tuple[str, int], int]) -> dict[str, list[Row]]:
        """What the core makes of the payments in the topic, taken in order, each under its version of the rules.

        Args:
            version_of: the version at positions of the topic; a position without one has that of the position before.
        """
        versions, schema = RuleVersions(self.checkpoint), self.job.event_schema
        rows: list[tuple[int, Row]] = []
        for partition, messages in itertools.groupby(
            sorted(self.broker.read(self.topic), key=lambda each: (each.partition(), each.offset())),
            key=lambda each: each.partition(),
        ):
            version = 1
            for message in messages:
                source = f"{self.topic}[{partition}]"
                version = version_of.get((source, message.offset()), version)
                location = {SOURCE: source, SOURCE_ORDER: partition, POSITION: message.offset()}
                rows.append((version, self.written(message) | location))
        engine = self.job.settings.engine.model_dump(include={"shards"}) | {"allowed_lateness": "100ms"}
        pipeline = Pipeline(versions.rule_set(1), schema, **engine)
        found: dict[str, list[Row]] = {name: [] for name in columns.TOPICS}
        for version, part in itertools.groupby(sorted(rows, key=lambda each: each[0]), key=lambda each: each[0]):
            pipeline.rule_set = versions.rule_set(version)
            pipeline.found = {}
            pipeline.batch([[row for _, row in part]])
            for name, messages in messages_of(pipeline).items():
                found[name] += [json.loads(message.value) for message in messages]
        return found


def comparable(rows: Iterable[Row]) -> list[Row]:
    """Rows without what a replay cannot know: where and when a message was made."""
    dropped = {"version", "source", "position", "id", "group_by", "ingested_at", "decided_at"}
    return sorted(({name: row[name] for name in row if name not in dropped} for row in rows), key=repr)

"""A real broker for tests, with topics that are made, written and read in a line each."""

import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from buckets.config.kafka import KafkaSettings, SecuritySettings
from buckets.kafka.faults import client_settings
from buckets.kafka.local_broker import LocalBroker, free_port

WITHIN_S = 60.0
POLL_S = 0.05
__all__ = ["Keystore", "TestBroker", "free_port"]


@dataclass(frozen=True)
class Keystore:
    """The certificate of a broker: a PKCS 12 file of it and its key, its password, and a PEM file of who signed it."""

    path: Path
    password: str
    ca_file: Path


def login_properties(users: Mapping[str, str]) -> dict[str, str]:
    """How clients log in; the broker itself has a login too, which nobody needs to know."""
    own = secrets.token_hex(16)
    logins = {f"user_{user}": password for user, password in {**users, "_broker": own}.items()}
    options = {"username": "_broker", "password": own, **logins}
    written = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{module} required {written};",
    }


def tls_properties(keystore: Keystore) -> dict[str, str]:
    """The certificate it shows, and whom it trusts: a broker is a client of its own listener."""
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore.path.absolute()),
        "ssl.keystore.password": keystore.password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keystore.ca_file.absolute()),
    }


class TestBroker:
    """A running broker; `local` starts and stops it."""

    __test__ = False

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        users: Mapping[str, str] | None = None,
        keystore: Keystore | None = None,
    ) -> None:
        """Start it; with users clients need a login (PLAIN), with a certificate TLS."""
        security: dict[str, Any] = {"protocol": ("SASL_" if users else "") + ("SSL" if keystore else "PLAINTEXT")}
        for username, password in list((users or {}).items())[:1]:
            security |= {"mechanism": "PLAIN", "username": username, "password": password}
        if keystore is not None:
            security["ca_file"] = str(keystore.ca_file)
        properties = (login_properties(users) if users else {}) | (tls_properties(keystore) if keystore else {})
        settings = SecuritySettings.model_validate(security)
        self.local = LocalBroker(folder, port or free_port(), settings, properties)
        self.local.start()

    @property
    def kafka(self) -> KafkaSettings:
        """How clients reach it."""
        return self.local.kafka

    def start(self) -> None:
        """Start it again, with its data and at its port."""
        self.local.start()

    def stop(self) -> None:
        """Stop it in good order."""
        self.local.stop()

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.local.kill()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nobody for as long as the block takes; what it has received it may still do afterwards."""
        pid = self.local.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic; returns its name."""
        admin = AdminClient(client_settings(self.kafka))
        made = admin.create_topics([NewTopic(topic, partitions, config=dict(config or {}))], operation_timeout=WITHIN_S)
        made[topic].result(WITHIN_S)
        self._wait_until(lambda: self.topics().get(topic) == partitions, f"topic {topic} is not there")
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions: so many in all."""
        admin = AdminClient(client_settings(self.kafka))
        admin.create_partitions([NewPartitions(topic, partitions)], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)
        self._wait_until(lambda: self.topics().get(topic) == partitions, f"topic {topic} has not grown")

    def delete(self, topic: str) -> None:
        """Remove a topic; it is gone when this returns."""
        admin = AdminClient(client_settings(self.kafka))
        admin.delete_topics([topic], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)
        self._wait_until(lambda: topic not in self.topics(), f"topic {topic} is still there")

    def forget(self, topic: str, before: int) -> None:
        """Remove the messages before an offset of partition 0, as expiry would."""
        up_to = TopicPartition(topic, 0, before)
        admin = AdminClient(client_settings(self.kafka))
        admin.delete_records([up_to])[up_to].result(WITHIN_S)

    def _wait_until(self, condition: Callable[[], bool], else_said: str) -> None:
        """Wait for what brokers learn of a moment later."""
        given_up_s = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < given_up_s, else_said
            time.sleep(POLL_S)

    def config(self, topic: str) -> dict[str, str]:
        """The settings of a topic."""
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = AdminClient(client_settings(self.kafka))
        found = admin.describe_configs([wanted])[wanted].result(WITHIN_S)
        return {name: entry.value for name, entry in found.items()}

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = AdminClient(client_settings(self.kafka))
        admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has, those of Kafka itself left out."""
        topics = AdminClient(client_settings(self.kafka)).list_topics(timeout=WITHIN_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}

    def produce(
        self,
        topic: str,
        values: Sequence[str | bytes | None],
        keys: Sequence[str | bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Write messages, in this order; those without a key to one partition after the other, or all to one."""
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        # One request at a time keeps the order; an idempotent producer would take a second longer.
        producer = Producer({**client_settings(self.kafka), "max.in.flight.requests.per.connection": 1})
        options = {} if partition is None else {"partition": partition}
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            producer.produce(topic, value, key, on_delivery=on_delivery, **options)
            producer.poll(0)
        left = producer.flush(WITHIN_S)
        assert not failed, failed[0].str()
        assert not left, f"{left} messages were not acknowledged"

    def read(self, topic: str) -> list[Message]:
        """All messages of a topic, by partition and offset."""
        # The broker holds an answer that there is no more for as long as it may, half a second by default.
        own = {"group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 5}
        consumer = Consumer({**client_settings(self.kafka), **own})
        found: list[Message] = []
        try:
            partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
            reading = set(partitions)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            given_up_s = time.monotonic() + WITHIN_S
            while reading:
                assert time.monotonic() < given_up_s, f"topic {topic} was not read to its end"
                for message in consumer.consume(10_000, POLL_S):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        reading.discard(message.partition())
                    else:
                        raise AssertionError(error.str())
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

"""What goes wrong with Kafka, in one line each, and whether it may pass of itself."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from buckets.errors import BucketsError
from buckets.kafka.settings import KafkaSettings

ANSWER_WITHIN_S = 10.0
ATTEMPT_S = 1.0
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_TLS = (KafkaError._SSL,)
_AT_ONCE = (*_LOGIN, *_TLS)
"""Faults that do not pass of themselves."""
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)


class Outage(BucketsError):
    """Kafka does not answer, which may pass."""


def client_settings(kafka: KafkaSettings) -> dict[str, str | int]:
    """Settings of every librdkafka client: reached as told, and quiet, since faults are said by us."""
    return {**kafka.librdkafka(), "log_level": 0, "socket.connection.setup.timeout.ms": 5_000}


def unreachable(kafka: KafkaSettings, detail: str) -> Outage:
    """No broker answers."""
    message = (
        f"kafka {kafka.bootstrap_servers}: no broker answers ({detail}); start it (`buckets kafka start` runs one "
        "here), or correct kafka.bootstrap_servers and kafka.security.protocol"
    )
    return Outage(message)


def login_refused(kafka: KafkaSettings) -> BucketsError:
    """The broker does not take the login."""
    message = (
        f"kafka {kafka.bootstrap_servers}: the login is refused; correct username, password and mechanism under "
        "kafka.security"
    )
    return BucketsError(message)


def tls_failed(kafka: KafkaSettings, detail: str) -> BucketsError:
    """The broker's certificate, or the client's, is not taken."""
    message = (
        f"kafka {kafka.bootstrap_servers}: no TLS connection ({detail}); correct ca_file, certificate_file and "
        "key_file under kafka.security"
    )
    return BucketsError(message)


def denied(kafka: KafkaSettings, doing: str) -> BucketsError:
    """The user may not do that."""
    message = f"kafka {kafka.bootstrap_servers}: {doing} is not allowed for this user; give it the right to"
    return BucketsError(message)


def explain(error: KafkaError, kafka: KafkaSettings, doing: str) -> BucketsError:
    """A fault of librdkafka in one line.

    Args:
        error: the fault.
        kafka: how Kafka is reached.
        doing: what was tried, such as `writing to topic alerts`.
    """
    if error.code() in _LOGIN:
        return login_refused(kafka)
    if error.code() in _TLS:
        return tls_failed(kafka, error.str())
    if error.code() in _DENIED:
        return denied(kafka, doing)
    if error.code() in _UNREACHABLE:
        return unreachable(kafka, f"{doing}: {error.str()}")
    message = f"kafka {kafka.bootstrap_servers}: {doing} failed: {error.str()}"
    return Outage(message) if error.retriable() else BucketsError(message)


class Broker:
    """The brokers, asked about topics."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Reach the brokers as `kafka` says; nothing is asked yet."""
        self._kafka = kafka
        self._fault: KafkaError | None = None
        settings: dict[str, Any] = {**client_settings(kafka), "error_cb": self._note}
        self._admin = AdminClient(settings)

    def _note(self, error: KafkaError) -> None:
        if self._fault is None or error.code() in _AT_ONCE:
            self._fault = error

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has.

        Raises:
            BucketsError: the login is refused, or there is no TLS connection.
            Outage: no broker answers.
        """
        given_up_s = time.monotonic() + ANSWER_WITHIN_S
        while True:
            try:
                topics = self._admin.list_topics(timeout=ATTEMPT_S).topics
            except KafkaException as error:
                self._admin.poll(0)
                fault = self._fault or error.args[0]
                if time.monotonic() > given_up_s or fault.code() in _AT_ONCE:
                    raise explain(fault, self._kafka, "asking for the topics") from None
            else:
                return {name: len(topic.partitions) for name, topic in topics.items()}

    def check_topics(self, wanted: Iterable[str]) -> dict[str, int]:
        """See that topics are there.

        Returns:
            How many partitions each topic has, as `partitions`.

        Raises:
            BucketsError: one is not, or the login is refused.
            Outage: no broker answers.
        """
        there = self.partitions()
        missing = [topic for topic in wanted if topic not in there]
        if missing:
            message = (
                f"kafka {self._kafka.bootstrap_servers}: there is no topic {', '.join(missing)}; "
                "`buckets kafka topics CONF` creates the topics of a configuration"
            )
            raise BucketsError(message)
        return there

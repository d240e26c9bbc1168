"""Faults of Kafka, in one line each, and whether they may pass by themselves."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient

from buckets.config.environment import secrets_of
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, Outage, first_line

_T = TypeVar("_T")
ANSWER_WITHIN_S = 10.0
ATTEMPT_S = 1.0
AGAIN_AFTER_S = 0.05
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_TLS = (KafkaError._SSL,)
_AT_ONCE = (*_LOGIN, *_TLS)  # Faults that do not pass by themselves
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_UNREACHABLE = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
)
_PASSING = (
    # A broker that starts, stops or hands over, or an incomplete quorum or replica set.
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    KafkaError.REBOOTSTRAP_REQUIRED,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.STALE_BROKER_EPOCH,
    KafkaError.STALE_CTRL_EPOCH,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # The brokers no longer know the producer, as after a crash with loss; they will accept a new one.
    KafkaError._FATAL,
    KafkaError._FENCED,
    KafkaError.DUPLICATE_SEQUENCE_NUMBER,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.PRODUCER_FENCED,
    KafkaError.UNKNOWN_PRODUCER_ID,
    # Messages that waited in an abandoned client.
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
)
"""Faults that pass by themselves or on a retry; librdkafka calls only those of transactions retriable."""
_NO_ID = str(Uuid(0, 0))
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def opened(client: Callable[[dict[str, Any]], _T], kafka: KafkaSettings, settings: Mapping[str, Any]) -> _T:
    """Create a client of librdkafka, as all code must; settings that it rejects raise a BucketsError."""
    try:
        return client(dict(settings))
    except (KafkaException, TypeError, ValueError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else first_line(error)
        for secret in secrets_of(kafka):
            why = why.replace(secret, "…")
        message = (
            f"kafka {kafka.bootstrap_servers}: no client can be made of these settings ({why}); correct kafka and "
            "kafka.security"
        )
        raise BucketsError(message) from None


def client_settings(kafka: KafkaSettings) -> dict[str, str | int]:
    """Return the settings of every librdkafka client; its own log is off, since faults are reported here."""
    return {**kafka.librdkafka(), "log_level": 0, "socket.connection.setup.timeout.ms": 5_000}


def consumer_settings(kafka: KafkaSettings) -> dict[str, str | int]:
    """Return the settings of every consumer of librdkafka."""
    return {**client_settings(kafka), "isolation.level": kafka.isolation}


_FOLLOWING: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    # Followers decide where to begin: nothing is skipped silently.
    "auto.offset.reset": "error",
    # Reports the end even if compaction has removed the last messages before it.
    "enable.partition.eof": True,
    # A message is delivered as soon as it is written.
    "fetch.wait.max.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
AT_END = KafkaError._PARTITION_EOF


def following_consumer(kafka: KafkaSettings, group: str, more: Mapping[str, int] | None = None) -> Consumer:
    """Create a consumer that follows topics in its own group, and reports `AT_END` at the end of each partition."""
    own = {**_FOLLOWING, "group.id": f"{group}-{uuid.uuid4()}", **(more or {})}
    return opened(Consumer, kafka, {**consumer_settings(kafka), **own})


def unreachable(kafka: KafkaSettings, detail: str) -> Outage:
    """Return the error for brokers that do not answer."""
    return Outage(
        f"kafka {kafka.bootstrap_servers}: no broker answers ({detail}); start it (`buckets kafka start` runs one "
        "here), or correct kafka.bootstrap_servers and kafka.security.protocol"
    )


def login_refused(kafka: KafkaSettings) -> BucketsError:
    """Return the error for a refused login."""
    return BucketsError(
        f"kafka {kafka.bootstrap_servers}: the login is refused; correct username, password and mechanism under "
        "kafka.security"
    )


def tls_failed(kafka: KafkaSettings, detail: str) -> BucketsError:
    """Return the error for a refused certificate, the broker's or the client's."""
    return BucketsError(
        f"kafka {kafka.bootstrap_servers}: no TLS connection ({detail}); correct ca_file, certificate_file and "
        "key_file under kafka.security"
    )


def denied(kafka: KafkaSettings, doing: str) -> BucketsError:
    """Return the error for a missing permission of the user."""
    return BucketsError(f"kafka {kafka.bootstrap_servers}: {doing} is not allowed for this user; give it the right to")


def may_pass(error: KafkaError) -> bool:
    """Return whether a fault may pass by itself, so that a retry may succeed."""
    return error.code() in _UNREACHABLE or error.code() in _PASSING


def explain(error: KafkaError, kafka: KafkaSettings, doing: str) -> BucketsError:
    """Translate a fault; `doing` is the attempted action, such as `writing to topic alerts`."""
    if error.code() in _LOGIN:
        return login_refused(kafka)
    if error.code() in _TLS:
        return tls_failed(kafka, error.str())
    if error.code() in _DENIED:
        return denied(kafka, doing)
    if error.code() in _UNREACHABLE:
        return unreachable(kafka, f"{doing}: {error.str()}")
    at = f"kafka {kafka.bootstrap_servers}"
    if error.code() in _GONE:
        return BucketsError(
            f"{at}: {doing} failed, the topic is not there; "
            "`buckets kafka topics CONF` creates the topics of a configuration"
        )
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        message = f"{at}: {doing} failed, a message is larger than its topic takes; raise its max.message.bytes"
        return BucketsError(message)
    message = f"{at}: {doing} failed: {error.str()}"
    return Outage(message) if may_pass(error) else BucketsError(message)


def read_offsets(kafka: KafkaSettings, consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return a partition's first offset and the one after its last message; raises as `Broker`.

    A broker lists a new topic a moment before it leads it, so the question is repeated for a while.
    """

    def ask(left_s: float) -> tuple[int, int]:
        first, end = consumer.get_watermark_offsets(partition, timeout=max(left_s, ATTEMPT_S))
        return first, end

    return _answered(ask, ANSWER_WITHIN_S, kafka, f"reading topic {partition.topic}")


def _answered(
    ask: Callable[[float], _T],
    within_s: float,
    kafka: KafkaSettings,
    doing: str,
    cause_of: Callable[[KafkaError], KafkaError] = lambda fault: fault,
) -> _T:
    """Repeat a question until it is answered, since brokers answer only some time after their start.

    `ask` receives the remaining seconds, and `cause_of` returns the fault that underlies the one raised.
    """
    given_up_s = time.monotonic() + within_s
    while True:
        try:
            return ask(given_up_s - time.monotonic())
        except KafkaException as error:
            fault = cause_of(error.args[0])
            if time.monotonic() > given_up_s or not may_pass(fault):
                raise explain(fault, kafka, doing) from None
            time.sleep(AGAIN_AFTER_S)


class Broker:
    """The brokers, asked about topics.

    A question raises Outage if no broker answers, and BucketsError if a topic does not exist or may not be read, the
    login is refused, or TLS fails.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        """Store how to reach the brokers; nothing is asked yet."""
        self._kafka = kafka
        self._fault: KafkaError | None = None
        settings: dict[str, Any] = {**client_settings(kafka), "error_cb": self._note}
        self._admin = opened(AdminClient, kafka, settings)

    def _note(self, error: KafkaError) -> None:
        if self._fault is None or error.code() in _AT_ONCE:
            self._fault = error

    def partitions(self, within_s: float = ANSWER_WITHIN_S) -> dict[str, int]:
        """Return the number of partitions of each topic."""

        def ask(_: float) -> dict[str, int]:
            topics = self._admin.list_topics(timeout=ATTEMPT_S).topics
            return {name: len(topic.partitions) for name, topic in topics.items()}

        return self._answer(ask, "asking for the topics", within_s)

    def topic_id(self, topic: str, within_s: float) -> str:
        """Return the id of a topic, as `topic_ids`."""
        return self.topic_ids([topic], within_s)[topic]

    def topic_ids(self, topics: Collection[str], within_s: float) -> dict[str, str]:
        """Return topic ids, which no earlier topic of the same name had; empty if brokers have no ids."""

        def ask(_: float) -> dict[str, str]:
            described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=ATTEMPT_S)
            ids = {topic: str(future.result().topic_id) for topic, future in described.items()}
            return {topic: "" if topic_id == _NO_ID else topic_id for topic, topic_id in ids.items()}

        return self._answer(ask, f"asking for topic {', '.join(topics)}", within_s)

    def _answer(self, ask: Callable[[float], _T], doing: str, within_s: float) -> _T:
        """Repeat a question until it is answered; a fault that the client reports meanwhile explains more."""
        self._fault = None

        def cause_of(met: KafkaError) -> KafkaError:
            self._admin.poll(0)
            return self._fault or met

        return _answered(ask, within_s, self._kafka, doing, cause_of)

    def offsets(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """Return the first offset of each partition of a topic, and the one after its last message."""
        consumer = opened(Consumer, self._kafka, {**consumer_settings(self._kafka), "group.id": "buckets-offsets"})
        try:
            pairs = [TopicPartition(topic, number) for number in range(partitions)]
            return [read_offsets(self._kafka, consumer, pair) for pair in pairs]
        finally:
            consumer.close()

    def check_topics(self, wanted: Iterable[str]) -> dict[str, int]:
        """Check that topics exist; return the number of partitions of each topic, as `partitions`."""
        there = self.partitions()
        missing = [topic for topic in wanted if topic not in there]
        if missing:
            message = (
                f"kafka {self._kafka.bootstrap_servers}: there is no topic {', '.join(missing)}; "
                "`buckets kafka topics CONF` creates the topics of a configuration"
            )
            raise BucketsError(message)
        return there

"""What goes wrong with Spark's own Kafka client, in one line each."""

import re
from collections.abc import Callable
from functools import partial

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.kafka.faults import Outage, denied, login_refused, tls_failed, unreachable
from buckets.spark.running import Patience

_LOGIN = ("SaslAuthenticationException", "Authentication failed")
_TLS = ("SslAuthenticationException",)
_DENIED = ("TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException")
_GONE = ("UnknownTopicOrPartitionException", "UnknownTopicIdException", "are gone. Some data may have been missed")
_LOST = (
    "some data may have been missed",
    "Some data may have been lost",
    "OffsetOutOfRangeException",
    "KAFKA_DATA_LOSS",
)
_AWAY = (
    "org.apache.kafka.common.errors.TimeoutException",
    "DisconnectException",
    "NetworkException",
    "BrokerNotAvailableException",
    "LeaderNotAvailableException",
    "NotLeaderOrFollowerException",
    "Timeout of",
    "Timed out waiting",
    "Cannot fetch record for offset",
    "Failed to construct kafka consumer",
)


def patience_with(kafka: KafkaSettings, on_outage: Callable[[Outage], None]) -> Patience:
    """What a query does about faults of its Kafka.

    Args:
        kafka: how Kafka is reached.
        on_outage: called when it does not answer and is waited for.
    """
    return Patience(kafka.outage_patience / 1000, partial(explain_spark, kafka), on_outage)


def explain_spark(kafka: KafkaSettings, text: str) -> BucketsError | None:
    """A failure of a query in one line; None where Kafka has no part in it.

    Args:
        kafka: how Kafka is reached.
        text: Spark's text of the failure, with its causes.
    """
    at = f"kafka {kafka.bootstrap_servers}"
    if _has(text, _TLS):
        return tls_failed(kafka, "while reading")
    if _has(text, _LOGIN):
        return login_refused(kafka)
    if _has(text, _DENIED):
        return denied(kafka, "reading the topic")
    if _has(text, _GONE):
        topic = re.search(r"\b([A-Za-z0-9._-]+)-\d+\b are gone", text)
        name = f" {topic[1]}" if topic else ""
        message = (
            f"{at}: the topic{name} that is read has been deleted, or partitions of it; nothing of the batch is "
            "committed. Create it again and name a new checkpoint, or go back to the topic that it was made with"
        )
        return BucketsError(message)
    if _has(text, _LOST):
        message = (
            f"{at}: messages that the checkpoint has not read yet are no longer in the topic: they have expired, or "
            "the topic was created again; nothing is skipped. Name a new checkpoint to begin with what is there"
        )
        return BucketsError(message)
    if _has(text, _AWAY):
        return unreachable(kafka, "while reading")
    return None


def _has(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)

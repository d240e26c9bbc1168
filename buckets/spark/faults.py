"""Explain failures of Spark with an object store or Kafka in one line."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from buckets.checkpoint.topic_generations import NewTopic
from buckets.config.kafka import KafkaSettings
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError, Outage
from buckets.kafka.faults import denied, login_refused, tls_failed, unreachable
from buckets.kafka.topic_guard import TopicGuard
from buckets.spark.running import Patience
from buckets.spark.session_folder import last_error, log_path
from buckets.stores.store_path import StoreAway, store_away

_IN_TASK = re.compile(r"buckets\.stores\.store_path\.StoreAway: *(\S.*)")
_PLACE = re.compile(r"\bs3a://[^\s:,;)'\"]+")
_OF_CLIENT = re.compile(
    r"(?:awssdk|fs\.s3a)\S*(?:SdkClientException|ClientIOException|Status500|Throttled|Timeout|ConnectException)"
    r"|s3a.*\b(?:Status Code: 5\d\d|Connection re(?:fused|set)|Premature end|EOFException|NoHttpResponse)"
)
"""What Spark's S3 client reports when a server does not answer, or answers wrongly."""
_REASON = re.compile(r"\bon s3a://\S+: (?:[\w.$]+: )*(.+)")
"""The reason in such a report, after the path and the exception names."""


def explain_store(text: str) -> StoreAway | None:
    """Explain a failure of Spark in one line; None if no store is involved."""
    ours = _IN_TASK.search(text)
    if ours is not None:
        return StoreAway(ours[1].strip())
    place = _PLACE.search(text)
    if place is None or _OF_CLIENT.search(text) is None:
        return None
    reason = _REASON.search(text)
    return store_away(place[0], (last_error(Exception(text)) if reason is None else reason[1])[:200])


@contextmanager
def java_in_one_line() -> Iterator[None]:
    """Report in one line Java's errors about something that is opened when a query starts."""
    try:
        yield
    except Py4JJavaError as error:
        message = f"Spark cannot start the query: {last_error(error)}; details are in {log_path()}"
        raise explain_store(str(error)) or BucketsError(message) from error


_REGISTRY_AWAY = re.compile(r"buckets\.kafka\.registry\.RegistryAway: *(\S.*)")
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


def patience_of(
    settings: JobSettings,
    on_outage: Callable[[Outage], None],
    say: Callable[[str], None],
    guard: TopicGuard | None = None,
) -> Patience:
    """Return what a job's queries wait for, and for how long; `guard` watches the topics that they read."""
    kafka = settings.kafka

    def explain(text: str) -> BucketsError | None:
        of_store = explain_store(text)
        if of_store is not None or kafka is None:
            return of_store
        if guard is not None and (_has(text, _GONE) or _has(text, _LOST)):
            # Messages may be missing because their topic was created again.
            try:
                guard.check()
            except NewTopic as error:
                return error
            except BucketsError:
                pass
        return explain_spark(kafka, text)

    return Patience(
        outage_s=0.0 if kafka is None else kafka.outage_patience / 1000,
        start_s=settings.start_patience / 1000,
        stall_s=settings.stall_patience / 1000,
        shutdown_s=settings.shutdown_within / 1000,
        store_s=settings.store_patience / 1000,
        say=say,
        explain=explain,
        on_outage=on_outage,
    )


def explain_spark(kafka: KafkaSettings, text: str) -> BucketsError | None:
    """Explain a query's failure in one line; None if neither Kafka nor its schema registry is involved."""
    at = f"kafka {kafka.bootstrap_servers}"
    registry = _REGISTRY_AWAY.search(text)
    if registry is not None:
        return Outage(registry[1].strip())
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
            "committed. Create it again and start once with --new-topic, or name a new checkpoint"
        )
        return BucketsError(message)
    if _has(text, _LOST):
        message = (
            f"{at}: messages that the checkpoint has not read yet are no longer in the topic: they have expired; "
            "nothing is skipped. Name a new checkpoint to begin with what is there"
        )
        return BucketsError(message)
    if _has(text, _AWAY):
        return unreachable(kafka, "while reading")
    return None


def _has(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)

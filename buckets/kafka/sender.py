"""Sends messages to topics with an idempotent producer, replaced after a failure; also at a rate, or from a file."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.events.arrivals import DeadLetter, parse
from buckets.events.event_file import EventFile, file_arrivals, open_event_file, raw_lines
from buckets.events.json_events import fields_of
from buckets.events.schema import EventSchema
from buckets.kafka.faults import Broker, client_settings, explain, may_pass, opened, unreachable
from buckets.rule_tests.given_events import written_events

ROOM_S = 0.05
GIVEN_UP_WITHIN_S = 1.0
_PRODUCER: dict[str, str | int | bool] = {
    # The client neither repeats nor reorders, and a message counts only once all replicas have it.
    "enable.idempotence": True,
    "acks": "all",
    # Keys go to the same partitions as from Java's clients and from calls.
    "partitioner": "murmur2_random",
    # Messages leave when `flush` is called, so that a small batch can be one request.
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
    # The topic decides how large a message may be: the client allows as much as it can.
    "message.max.bytes": 1_000_000_000,
}


class Sender:
    """Sends messages, and reports whether they have arrived.

    Everything sent before `flush` returns is one attempt. If it fails, its messages, including waiting ones, are given
    up, and the caller repeats the attempt. The repetition uses a new client, because the failed one may still report on
    its messages, and the brokers may have forgotten it for good.

    All methods raise Outage if the brokers did not answer in time, and BucketsError if a message was refused.
    """

    def __init__(
        self, kafka: KafkaSettings, doing: str = "writing messages", room: Mapping[str, int] | None = None
    ) -> None:
        """Prepare to send to the brokers of `kafka`; `doing` is the purpose, and `room` sizes the client's queue."""
        self._kafka = kafka
        self._doing = doing
        timeout = {"delivery.timeout.ms": kafka.delivery_timeout}
        self._settings = {**client_settings(kafka), **_PRODUCER, **timeout, **(room or {})}
        self._client = _Client(kafka, self._settings)

    def send(self, topic: str, key: str, value: str | bytes | None, headers: dict[str, str]) -> None:
        """Send a message; `flush` reports whether it has arrived. Without a value it deletes the key's message."""
        written = value.encode() if isinstance(value, str) else value
        while True:
            try:
                self._client.produce(topic, key.encode(), written, headers)
            except BufferError:
                # The broker has been away for so long that the queue is full.
                self.serve(ROOM_S)
            except KafkaException as error:
                self._give_up()
                raise explain(error.args[0], self._kafka, f"writing to topic {topic}") from None
            else:
                break
        self.serve()

    def serve(self, wait_s: float = 0) -> None:
        """Handle the client's delivery reports."""
        self._client.producer.poll(wait_s)
        failed = self._client.failed
        if failed is not None:
            self._give_up()
            raise explain(failed, self._kafka, self._doing)

    def flush(self) -> None:
        """Wait until all messages have been acknowledged."""
        left = self._client.producer.flush(self._kafka.delivery_timeout / 1000)
        self.serve()
        if left:
            self._give_up()
            raise unreachable(self._kafka, f"{self._doing}: {left:,} were not acknowledged in time")

    def _give_up(self) -> None:
        self._client.producer.purge()
        # A client and its threads end once it has reported on every message.
        self._client.producer.flush(GIVEN_UP_WITHIN_S)
        self._client = _Client(self._kafka, self._settings)


class _Client:
    """A producer, and the first fault of its messages."""

    def __init__(self, kafka: KafkaSettings, settings: Mapping[str, str | int | bool]) -> None:
        self.producer = opened(Producer, kafka, settings)
        self.failed: KafkaError | None = None

    def produce(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, str]) -> None:
        named: list[tuple[str, str | bytes | None]] = list(headers.items())
        self.producer.produce(topic, value, key, headers=named, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        # A permanent fault is more informative than one that may pass, such as that of a later message.
        if error is not None and (self.failed is None or (may_pass(self.failed) and not may_pass(error))):
            self.failed = error


def send_messages(
    kafka: KafkaSettings | None,
    topic: str,
    messages: Iterable[tuple[str, str | None, dict[str, str]]],
    doing: str = "writing messages",
) -> None:
    """Send messages, each a key, a value and headers, to a topic of a job with brokers, and wait until they arrive."""
    assert kafka is not None
    sender = Sender(kafka, doing)
    for message in messages:
        sender.send(topic, *message)
    sender.flush()


INTENDED = "intended_ms"  # Header: when a message was due, in ms since the epoch, as decimal text
FASTEST = 1_000_000
_WAKE_S = 0.05
_ROOM = {
    # Room for everything due while the broker does not answer, so that the schedule holds.
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    # Each leaves when it is due.
    "linger.ms": 0,
}
_NS = 1_000_000_000


def keyed_lines(lines: Iterable[str], field: str = "payerId") -> Iterator[tuple[str, bytes]]:
    """Yield JSON lines as pairs of key, the text of a field, and value; lines without the field get an empty key."""
    there = re.compile(rf'"{re.escape(field)}"\s*:\s*("(?:[^"\\]|\\.)*")')
    for line in lines:
        match = there.search(line)
        yield _text(match[1]) if match else "", line.encode()


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted


def paced_produce(
    kafka: KafkaSettings,
    topic: str,
    messages: Iterable[tuple[str, bytes]],
    rate: float,
    on_sent: Callable[[str, int], None] | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Send messages (keys and values) at a rate per second, each with the time when it was due; return how many.

    Waits until they have arrived. `on_sent` is called with key and due time in ms of each message that the client has
    accepted, and must be quick. `stop` ends it early.
    """
    if not 0 < rate <= FASTEST:
        message = f"rate: {rate:g} messages a second; the limits are more than 0 and {FASTEST:,}: choose one in between"
        raise BucketsError(message)
    Broker(kafka).check_topics([topic])
    # No message is sent again: each waits as long as an outage may last.
    patience = max(kafka.outage_patience, kafka.delivery_timeout)
    patient = kafka.model_copy(update={"delivery_timeout": patience})
    sender = Sender(patient, f"writing to topic {topic}", _ROOM)
    stop = stop or threading.Event()
    # Due times follow from numbers, so that no error accumulates.
    due = zip((int(number * _NS / rate) for number in count()), messages, strict=False)
    # The two clocks are read once, so that a step of the wall clock moves no due time.
    wall_ns, steady_ns = time.time_ns(), time.monotonic_ns()
    sent = 0
    for after_ns, (key, value) in due:
        if not _wait_until(steady_ns + after_ns, stop, sender):
            break
        intended_ms = (wall_ns + after_ns) // 1_000_000
        sender.send(topic, key, value, {INTENDED: str(intended_ms)})
        sender.serve()
        sent += 1
        if on_sent is not None:
            on_sent(key, intended_ms)
    sender.flush()
    return sent


def _wait_until(moment_ns: int, stop: threading.Event, sender: Sender) -> bool:
    """Wait until a time of the steady clock; return False if stopped."""
    while not stop.is_set():
        left_s = (moment_ns - time.monotonic_ns()) / _NS
        if left_s <= 0:
            return True
        sender.serve()
        stop.wait(min(left_s, _WAKE_S))
    return False


KeyedMessage = tuple[str, bytes]  # A key and a value


def event_messages(
    path: Path, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    """Yield the events of a file as messages, in order; those without the field `key` get an empty key.

    JSON lines or records are sent unchanged, even if they are not events. Rows of CSV and Parquet are written as JSON
    with the declared fields; `on_bad` receives rows that are not events, which are not sent.
    """
    if key not in schema.field_names:
        message = f"--key {key}: event schema {schema.name!r} has no such field; it has {', '.join(schema.field_names)}"
        raise BucketsError(message)
    if key == schema.event_id and schema.identity.is_made:
        message = f"--key {key}: is an id that is made where events are read, and no message has it; name another field"
        raise BucketsError(message)
    if key in schema.arrays:
        message = f"--key {key}: is an array, and the key of a message is one value; name another field"
        raise BucketsError(message)
    file = open_event_file(path, schema)
    if file.kind != "json" and key not in file.fields:
        message = f"--key {key}: {path} has no such column; name another field"
        raise BucketsError(message)
    if file.kind == "json":
        return ((key_of_line(line, key), line) for line in raw_lines(file, schema))
    return _rows(file, schema, key, on_bad)


def key_of_line(line: bytes, key: str) -> str:
    """Return the text of a field of a JSON event; empty if it has none."""
    try:
        (value,) = fields_of(line.decode(), [key])
    except ValueError:
        return ""
    return _key_text(value)


def _rows(
    file: EventFile, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    for batch in file_arrivals(file, schema):
        events, dead_letters = parse(batch, schema, frozenset())
        if dead_letters:
            on_bad(dead_letters)
        for row in written_events(events, schema):
            if schema.identity.is_made:
                del row[schema.event_id]
            yield _key_text(row.get(key)), msgspec.json.encode(row)


def _key_text(value: object) -> str:
    """Return a value as key text, the same for all spellings of one rule key, except for numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""

"""Sends messages to a topic at a fixed rate, whatever becomes of them: the schedule waits for nothing.

Message number `i` is due `i / rate` seconds after the first. What is due is handed to the client at once. If the
client or the machine is late, everything that has become due goes out together, and still carries the times at which it
was due. So a delay that is measured from `intended_ms` counts what a user would have waited, even if the sender itself
was delayed.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.kafka.faults import Broker
from buckets.kafka.sender import Sender

INTENDED = "intended_ms"
"""Header: when a message was due, in ms since the epoch, as decimal text."""
FASTEST = 1_000_000
_WAKE_S = 0.05
_ROOM = {
    # Room for all that becomes due while the broker does not answer, so that the schedule holds.
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
_NS = 1_000_000_000


def keyed_lines(lines: Iterable[str], field: str = "payerId") -> Iterator[tuple[str, bytes]]:
    """Return JSON lines as keys and values of messages.

    Args:
        lines: JSON objects; broken ones too, which get an empty key if the field cannot be found.
        field: the field whose text is the key, so that all lines with the same key stay in order.
    """
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
    """Send messages at a fixed rate, each with the time at which it was due, and wait until they have arrived.

    Args:
        kafka: how Kafka is reached.
        topic: where they go.
        messages: keys and values; taken one by one, at the rate.
        rate: messages a second.
        on_sent: called with the key and the due time in ms of each message that has been handed to the client; it
            must be quick.
        stop: ends it early, within a twentieth of a second.

    Returns:
        How many were sent and have arrived.

    Raises:
        BucketsError: the rate makes no sense, there is no such topic, or a message was refused.
        Outage: the brokers do not answer.
    """
    if not 0 < rate <= FASTEST:
        message = f"rate: {rate:g} messages a second; the limits are more than 0 and {FASTEST:,}: choose one in between"
        raise BucketsError(message)
    Broker(kafka).check_topics([topic])
    # No message is sent again: each waits for as long as an outage may last.
    patience = max(kafka.outage_patience, kafka.delivery_timeout)
    patient = kafka.model_copy(update={"delivery_timeout": patience})
    sender = Sender(patient, f"writing to topic {topic}", _ROOM)
    stop = stop or threading.Event()
    due = zip(_schedule_ns(rate), messages, strict=False)
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


def _schedule_ns(rate: float) -> Iterator[int]:
    """Yield when each message is due, in ns after the first, from its number, so that no error adds up."""
    number = 0
    while True:
        yield int(number * _NS / rate)
        number += 1


def _wait_until(moment_ns: int, stop: threading.Event, sender: Sender) -> bool:
    """Wait for a moment of the steady clock; False if it was stopped."""
    while not stop.is_set():
        left_s = (moment_ns - time.monotonic_ns()) / _NS
        if left_s <= 0:
            return True
        sender.serve()
        stop.wait(min(left_s, _WAKE_S))
    return False

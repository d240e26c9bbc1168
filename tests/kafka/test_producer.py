"""The paced producer, on a real broker: nothing lost, in order, on a schedule that waits for nobody."""

import threading
import time
from collections.abc import Iterator

import pytest

from buckets.errors import BucketsError
from buckets.kafka.sender import INTENDED, keyed_lines, paced_produce
from tests.kafka.topic_reader import TopicReader

WITHIN_S = 60.0


def numbered(count: int, keys: int = 7) -> list[tuple[str, bytes]]:
    return [(f"p{number % keys}", str(number).encode()) for number in range(count)]


def read(reader: TopicReader, count: int) -> list:
    """The next messages, so many at the least."""
    found, given_up_s = [], time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < given_up_s, f"{len(found)} of {count} messages have come"
        found += reader.poll(0.5)
    return found


def intended_ms(message) -> int:
    return int(dict(message.headers())[INTENDED])


def test_messages_arrive_once_and_in_order_with_the_times_at_which_they_were_due(broker):
    topic = broker.create("paced")
    before_ms = time.time_ns() // 1_000_000
    assert paced_produce(broker.kafka, topic, numbered(500), rate=1000) == 500
    messages = broker.read(topic)
    assert [(message.key().decode(), message.value()) for message in messages] == numbered(500)
    due = [intended_ms(message) for message in messages]
    assert due[0] >= before_ms
    assert all(abs(at - due[0] - number) <= 1 for number, at in enumerate(due))


def test_the_rate_is_kept_also_by_messages_that_are_slow_to_make(broker):
    """One message takes as long as twenty are apart: the next are due meanwhile, and nobody waits for them after."""
    topic, rate = broker.create("slow-to-make"), 200

    def slow() -> Iterator[tuple[str, bytes]]:
        for number, message in enumerate(numbered(100)):
            if number == 10:
                time.sleep(20 / rate)
            yield message

    assert paced_produce(broker.kafka, topic, slow(), rate) == 100
    messages = broker.read(topic)
    due = [intended_ms(message) - intended_ms(messages[0]) for message in messages]
    assert due == [pytest.approx(number * 1000 / rate, abs=1) for number in range(100)]
    # Sent when it was due, or later where it could not be: never earlier.
    assert all(message.timestamp()[1] >= intended_ms(message) - 1 for message in messages)


def test_a_stop_ends_it_early_and_what_was_sent_has_arrived(broker):
    topic, stop, seen = broker.create("stopped"), threading.Event(), []

    def on_sent(key: str, due_ms: int) -> None:
        seen.append((key, due_ms))
        if len(seen) == 20:
            stop.set()

    assert paced_produce(broker.kafka, topic, numbered(10_000), 1000, on_sent, stop) == 20
    assert [(message.key().decode(), intended_ms(message)) for message in broker.read(topic)] == seen


def test_one_key_stays_in_one_partition(broker):
    topic = broker.create("keyed", partitions=3)
    paced_produce(broker.kafka, topic, numbered(300, keys=20), rate=10_000)
    keys_and_partitions = {(message.key(), message.partition()) for message in broker.read(topic)}
    assert len(keys_and_partitions) == 20
    assert len({partition for _, partition in keys_and_partitions}) == 3


@pytest.mark.parametrize("rate", [0, -1, 1e9])
def test_a_rate_that_makes_no_sense_is_refused(broker, rate, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        paced_produce(broker.kafka, "none", [], rate)


def test_a_topic_that_is_not_there_is_said_in_one_line(broker, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        paced_produce(broker.kafka, "nowhere", numbered(1), rate=10)


# Keys


def test_the_key_of_a_line_is_its_payer():
    lines = [
        '{"a":1,"payerId":"p1"}',
        '{"payerId": "p\\u00e9\\"x"}',
        '{"payerId":"p2","bro',
        "nothing",
        '{"payerId":7}',
    ]
    assert [key for key, _ in keyed_lines(lines)] == ["p1", 'pé"x', "p2", "", ""]
    assert [value.decode() for _, value in keyed_lines(lines)] == lines
    assert next(keyed_lines(['{"cardId":"c"}'], "cardId"))[0] == "c"

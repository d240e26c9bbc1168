"""The sender, on a real broker that does not answer for a while: an attempt that fails is over, the next arrives."""

import itertools
import threading
import time

import pytest

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, Outage
from buckets.kafka.sender import Sender, paced_produce

TIMEOUT_S = 2.0
WITHIN_S = 60.0


def impatient(kafka: KafkaSettings) -> KafkaSettings:
    """With a timeout that is shorter than the outages here."""
    return kafka.model_copy(update={"delivery_timeout": round(TIMEOUT_S * 1000)})


def test_an_attempt_that_meets_an_outage_fails_and_the_next_one_arrives_as_if_there_had_been_none(broker):
    """Twice, since a client that has failed once may report the failure at any later time."""
    topic, sender = broker.create("results"), Sender(impatient(broker.kafka))
    expected, during = [], []
    for outage in range(2):
        sender.send(topic, "k", f"before {outage}", {})
        sender.flush()
        with broker.frozen(), pytest.raises(Outage, match="no broker answers"):
            send_for_ever(sender, topic, f"during {outage}", during)
        send_until_it_arrives(sender, topic, f"after {outage}")
        expected += [f"before {outage}".encode(), f"after {outage}".encode()]
    messages = [message.value() for message in broker.read(topic)]
    assert list(dict.fromkeys(value for value in messages if value not in set(during))) == expected


def send_for_ever(sender: Sender, topic: str, value: str, sent: list[bytes]) -> None:
    """Send until it fails."""
    for number in itertools.count():
        sent.append(f"{value}, {number}".encode())
        sender.send(topic, "k", sent[-1], {})
        if number % 1000 == 0:
            sender.serve(TIMEOUT_S / 10)


def test_a_flush_that_meets_an_outage_leaves_nothing_for_the_next_one(broker):
    topic, sender = broker.create("flushed"), Sender(impatient(broker.kafka))
    with broker.frozen():
        for number in range(5):
            sender.send(topic, "k", f"during {number}", {})
        with pytest.raises(Outage, match="no broker answers"):
            sender.flush()
    send_until_it_arrives(sender, topic, "after")
    assert {message.value() for message in broker.read(topic)} - {
        f"during {number}".encode() for number in range(5)
    } == {b"after"}


def send_until_it_arrives(sender: Sender, topic: str, value: str) -> None:
    """Send as a job does that waits for the end of an outage, which a broker that answers again may still be in."""
    given_up_s = time.monotonic() + WITHIN_S
    while True:
        try:
            sender.send(topic, "k", value, {})
            sender.flush()
        except Outage:
            assert time.monotonic() < given_up_s
        else:
            return


def test_a_schedule_is_kept_through_an_outage_that_is_longer_than_the_delivery_timeout(broker):
    """Nobody sends a paced message again, so each waits for as long as an outage is waited for."""
    topic, rate = broker.create("paced-outage"), 20
    values = [str(number).encode() for number in range(round(2 * TIMEOUT_S * rate))]
    begun, sent = threading.Event(), []

    def send() -> None:
        messages = ((f"p{number % 3}", value) for number, value in enumerate(values))
        kafka = impatient(broker.kafka)
        sent.append(paced_produce(kafka, topic, messages, rate, lambda key, due_ms: begun.set()))

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert begun.wait(WITHIN_S)
    with broker.frozen():
        sending.join(1.5 * TIMEOUT_S)
    sending.join(WITHIN_S)
    assert sent == [len(values)]
    assert [message.value() for message in broker.read(topic)] == values


def test_how_large_a_message_may_be_its_topic_says(broker):
    large = "".join(f"{number:x}" for number in range(400_000))
    roomy = broker.create("roomy", config={"max.message.bytes": "20000000"})
    sender = Sender(broker.kafka)
    sender.send(roomy, "k", large, {})
    sender.flush()
    assert [message.value() for message in broker.read(roomy)] == [large.encode()]
    sender.send(broker.create("narrow", config={"max.message.bytes": "100000"}), "k", large, {})
    with pytest.raises(BucketsError, match=r"a message is larger than its topic takes; raise its max\.message\.bytes"):
        sender.flush()

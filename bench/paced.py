"""Sends payments at a fixed rate on its own schedule, each dated with the moment at which it was meant to be sent.

python bench/paced.py BOOTSTRAP_SERVERS TOPIC RATE SECONDS
"""

import itertools
import random
import sys
import time
from collections.abc import Iterator

from live_job import KEYS, payment

from buckets.config.kafka import KafkaSettings
from buckets.kafka.sender import paced_produce


def payments(rate: float, seconds: float) -> Iterator[tuple[str, bytes]]:
    """Payments, the n-th dated n / rate seconds after the first, however late it is taken."""
    dice, start_ms = random.Random(2), time.time() * 1000
    for number in itertools.takewhile(lambda number: number < rate * seconds, itertools.count()):
        yield payment(10_000_000 + number, dice.randrange(KEYS), round(start_ms + number * 1000 / rate))


def main() -> None:
    """Send."""
    servers, topic, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    kafka = KafkaSettings(bootstrap_servers=servers)
    print(paced_produce(kafka, topic, payments(rate, seconds), rate))


if __name__ == "__main__":
    main()

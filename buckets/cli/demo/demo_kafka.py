"""The command `buckets demo-kafka`: payments through a real Kafka, evaluated as they come, while a rule changes.

Everything is what a user would start by hand: a broker, `buckets run`, `buckets audit`, and a change of a rule. The
payments are sent on a fixed schedule, which waits for nothing.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal
from buckets.cli.demo.demo_kafka_report import print_report
from buckets.cli.demo.demo_kafka_run import KafkaDemo, Started
from buckets.cli.demo.folder import check_demo_folder, write_demo_conf
from buckets.clock import epoch_ms
from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import GeneratorSettings, Stream
from buckets.generator import generate as generate_stream
from buckets.kafka.local_broker import LocalBroker
from buckets.kafka.port import HOST, free_port
from buckets.monitor.live import read_live

MARK = ".buckets-demo-kafka"
PAYMENTS_A_DAY = 6_000
"""How busy a day of the stream is: the shorter the demo, the fewer days it replays."""


def demo_kafka(
    rate: Annotated[float, typer.Option(min=20, max=20_000, help="Payments a second.")] = 500,
    seconds: Annotated[int, typer.Option(min=10, max=3_600, help="For how long they come.")] = 60,
    out: Annotated[Path, typer.Option(help="A folder for everything the demo makes; an earlier demo is replaced.")] = (
        Path("demo-kafka-out")
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of the generator.")] = 7,
) -> None:
    """Evaluate payments from a real Kafka as they come, and change a rule meanwhile.

    It starts a broker, the main job and the audit job, sends the last days of
    payments with planted fraud at a steady rate, lowers the limit of a rule
    half way, and shows alerts, delays and accounts. At the end, also after
    Ctrl-C, it stops everything that it has started. The first start fetches Kafka (43 MB).

    \b
    Examples:
      buckets demo-kafka
      buckets demo-kafka --rate 2000 --seconds 120
      buckets watch demo-kafka-out/conf.yaml      # in another terminal, meanwhile
    """  # noqa: D301 - click needs the backspace itself
    console = Terminal()
    say = console.say
    _clear(out)
    stream = _generate(rate, seconds, seed)
    with _interrupted_by_any_signal(), Started(say) as started:
        broker = LocalBroker(out / "kafka", free_port())
        started.broker = broker
        say("starting a Kafka broker…")
        broker.start(say)
        address = f"{HOST}:{broker.port}"
        own = {"../kafka-out/": "", "localhost:9092": address, "interval: 5s": "interval: 2s"}
        conf = write_demo_conf(out, "kafka.yaml", own)
        demo = KafkaDemo(conf, out, started, say)
        demo.prepare()
        demo.stream(stream, rate)
        demo.catch_up()
        shown = demo.shown
    print_report(console, shown, [vars(case) for case in stream.truth])
    say(f"tables: {out / 'tables'}; read on: buckets alerts {out / 'tables'}")


def _clear(out: Path) -> None:
    """Remove an earlier demo.

    Raises:
        BucketsError: it still runs, or the folder holds something else.
    """
    check_demo_folder(out, MARK)
    earlier = read_live(out / "checkpoint")
    if earlier is not None and earlier.state(epoch_ms()) == "running":
        message = f"output {out}: a demo runs there, process {earlier.data['pid']}; end it, or name another with --out"
        raise BucketsError(message)
    try:
        if out.exists():
            LocalBroker(out / "kafka").stop()
            shutil.rmtree(out)
        write_whole(out / MARK, "")
    except OSError as error:
        message = f"output {out}: cannot be written ({error.strerror}); name another folder with --out"
        raise BucketsError(message) from None


def _generate(rate: float, seconds: int, seed: int) -> Stream:
    """Generate as many payments as there is time for: the last are of now, the first are days old."""
    payments = round(rate * seconds)
    days = max(payments // PAYMENTS_A_DAY, 1)
    start_s = time.time() - days * DAY_MS / 1000
    settings = GeneratorSettings(
        seed=seed,
        transactions=payments,
        days=days,
        start_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_s)),
        fraud_cases=min(5, payments // 200),
        malformed_rate=0.0002,
    )
    return generate_stream(settings)


@contextlib.contextmanager
def _interrupted_by_any_signal() -> Iterator[None]:
    """Treat every signal to end as a Ctrl-C, so that everything that was started is ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

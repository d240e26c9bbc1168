"""The command `buckets demo-kafka`: payments through a real Kafka, evaluated as they come, while a rule changes.

It starts what a user would start by hand: a broker, `buckets run`, `buckets audit`, and a change of a rule. Payments
are sent on a fixed schedule, which waits for nothing.
"""

import contextlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.child import Child, end_all
from buckets.cli.console import Terminal
from buckets.cli.demo.demo import check_demo_folder, write_demo_conf
from buckets.cli.demo.demo_kafka_report import ShownAlerts, print_report
from buckets.cli.rules.change import rules_of
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job
from buckets.config.kafka import KafkaSettings
from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import GeneratorSettings, Stream
from buckets.generator import generate as generate_stream
from buckets.kafka.follower import TopicReader
from buckets.kafka.local_broker import HOST, LocalBroker, free_port
from buckets.kafka.sender import FASTEST, keyed_lines, paced_produce
from buckets.kafka.topics import create_topics
from buckets.monitor.live import Live, read_live
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import read_rows
from buckets.resources import DEMO_RULES
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule

CHANGED_RULE, NEW_LIMIT = "payer-to-beneficiary-24h", Decimal(20_000)
MOST_WARM_UP, WARM_UP_BATCHES = 200, 10
PATIENCE_S = 300.0
"""How long nothing may move before something must be wrong: a busy machine is slow to start two Sparks."""
LOOK_AGAIN_S = 0.3
POLL_S = 0.1


class Started:
    """What the demo has started, and ends when it is over; no signal interrupts the ending."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin with nothing started."""
        self._say = say
        self.broker: LocalBroker | None = None
        self.children: list[Child] = []
        self.sending: Sending | None = None

    def __enter__(self) -> "Started":
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._say("stopping what was started…")
        if self.sending is not None:
            self.sending.stop()
        end_all(self.children)
        if self.broker is not None:
            self.broker.stop()


class Sending:
    """Payments on their way, sent by a thread of its own."""

    def __init__(self, kafka: KafkaSettings, topic: str, messages: Iterator[tuple[str, bytes]], rate: float) -> None:
        """Begin to send."""
        self.sent = 0
        self.error: BucketsError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(kafka, topic, messages, rate), daemon=True)
        self._thread.start()

    def _run(self, kafka: KafkaSettings, topic: str, messages: Iterator[tuple[str, bytes]], rate: float) -> None:
        try:
            paced_produce(kafka, topic, messages, rate, self._on_sent, self._stopping)
        except BucketsError as error:
            self.error = error

    def _on_sent(self, key: str, intended_ms: int) -> None:
        self.sent += 1

    @property
    def done(self) -> bool:
        """Whether all has been sent and has arrived.

        Raises:
            BucketsError: it could not be sent.
        """
        if self.error is not None:
            raise self.error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._thread.join()


class KafkaDemo:
    """The demo, from its topics to the last alert."""

    def __init__(self, conf: Path, out: Path, started: Started, say: Callable[[str], None]) -> None:
        """Take a configuration, whose broker runs already."""
        self.conf, self.out, self._started, self._say = conf, out, started, say
        self.job: Job = load_job(conf)
        kafka, source = self.job.settings.kafka, self.job.settings.source.topic
        assert kafka is not None
        assert source is not None
        self._kafka, self._source = kafka, source
        self._rules = load_rules(DEMO_RULES, self.job.event_schema)
        self.shown = ShownAlerts(say)
        self._warmed_up = 0

    def prepare(self) -> None:
        """Make the topics, announce the rules, and start both jobs."""
        create_topics(self._kafka, self.job, partitions=1)
        self._apply(self._rules, "the rules of the demo")
        self._say(f"Kafka runs at {self._kafka.bootstrap_servers}, with {len(self._rules)} rules in its topic of rules")
        self._say(f"starting the main job and the audit job; what they say is in {self.out}/run.log and audit.log…")
        for name in ("run", "audit"):
            self._started.children.append(Child([name, str(self.conf)], self.out / f"{name}.log"))
        self._say(f"to watch from another terminal: buckets watch {self.conf}")
        port = free_port()
        self._started.children.append(Child(["console", str(self.conf), "--port", str(port)], self.out / "console.log"))
        self._say(f"or in a browser: http://{HOST}:{port}")

    def _apply(self, rules: Sequence[Rule], reason: str, on_publish: Callable[[], None] = lambda: None) -> None:
        """Put rules where the job reads them, as `buckets rules apply` does."""
        kept = rules_of(self.job)
        asked = [RuleChange(change="put", rule=rule, author="demo", reason=reason) for rule in rules]
        revision = kept.revise(asked)
        on_publish()
        kept.publish(asked, revision)

    def live(self) -> Live | None:
        """Return the status of the main job."""
        return read_live(self.job.checkpoint)

    def evaluated(self) -> int:
        """Return how many payments have been evaluated."""
        live = self.live()
        return 0 if live is None else int(live.data["totals"]["events"])

    def stream(self, stream: Stream, rate: float) -> None:
        """Send the payments, and show what comes of them."""
        messages = keyed_lines(stream.json_lines())
        self._reader = TopicReader(self._kafka, [self.job.settings.output.topic(ALERTS)], from_end=False)
        started_s = time.monotonic()
        self._warm_up(messages, stream.line_count // 10)
        days = stream.settings.days
        replayed = f"the last {days} days" if days > 1 else "the last day"
        self._say(
            f"ready after {time.monotonic() - started_s:.0f} s; now come {stream.line_count:,} payments of {replayed}, "
            f"{rate:g} a second"
        )
        self.shown.begin()
        sending = self._started.sending = Sending(self._kafka, self._source, messages, rate)
        half = (stream.line_count - self._warmed_up) // 2
        while not sending.done:
            self._look()
            self.shown.progress(self._warmed_up + sending.sent, self.live)
            if sending.sent >= half and self.shown.change is None:
                self._change_a_rule()
        self.shown.sent = self._warmed_up + sending.sent

    def _warm_up(self, messages: Iterator[tuple[str, bytes]], most: int) -> None:
        """Send a few payments, and wait until both jobs are done with them.

        The first batches of a process are slow, which says nothing about the later ones.
        """
        self._wait_for(lambda: int(self.live() is not None), 1, "the main job has not started")
        portion = min(MOST_WARM_UP, most) // WARM_UP_BATCHES
        for _ in range(WARM_UP_BATCHES):
            self._warmed_up += paced_produce(self._kafka, self._source, islice(messages, portion), FASTEST)
            self._wait_for(self.evaluated, self._warmed_up, "{done} of the first {wanted} payments are evaluated")
        self._wait_for(lambda: self._audited(TRANSACTIONS), 1, "the audit job has not started")

    def _change_a_rule(self) -> None:
        """Lower a limit; the new version of the rules is in force from the next batch on."""
        before = next(rule for rule in self._rules if rule.rule_id == CHANGED_RULE)
        assert before.limit is not None
        limit = before.limit.model_copy(update={"value": NEW_LIMIT})
        self._say(f"— rule {CHANGED_RULE}: the limit goes from {before.limit.value:,f} to {NEW_LIMIT:,f} —")
        changed = before.model_copy(update={"limit": limit})
        self._apply([changed], "to see more", lambda: self.shown.changed(RuleVersions(self.job.checkpoint)))

    def _look(self) -> None:
        """Take the alerts that have come; see that both jobs run."""
        for child in self._started.children:
            child.check()
        self.shown.take([json.loads(message.value() or b"{}") for message in self._reader.poll(POLL_S)])

    def _wait_for(self, count: Callable[[], int], wanted: int, fault: str) -> None:
        """Wait until a count is as high as is wanted."""
        done = -1
        while (now := count()) < wanted:
            if now > done:
                done, until_s = now, time.monotonic() + PATIENCE_S
            if time.monotonic() > until_s:
                stuck = fault.format(done=f"{done:,}", wanted=f"{wanted:,}")
                message = (
                    f"{stuck}, and nothing has moved for {PATIENCE_S:.0f} s; what the jobs said is in "
                    f"{self.out}/run.log and audit.log"
                )
                raise BucketsError(message)
            again_s = time.monotonic() + LOOK_AGAIN_S
            while time.monotonic() < again_s:
                self._look()

    def catch_up(self) -> None:
        """Wait until all payments are evaluated, all alerts have come, and the tables have them too."""
        sent = self.shown.sent
        if self.evaluated() < sent:
            self._say(f"all {sent:,} are sent; waiting for the rest to be evaluated…")

        def evaluated() -> int:
            self.shown.progress(sent, self.live)
            return self.evaluated()

        self._wait_for(evaluated, sent, "{done} of {wanted} payments are evaluated")
        live = self.live()
        assert live is not None
        raised = int(live.data["totals"]["alerts"])
        self._wait_for(lambda: len(self.shown.alerts), raised, "{done} of {wanted} alerts have come in their topic")
        self.shown.ended(live)
        self._wait_for(lambda: self._audited(ALERTS), raised, "{done} of {wanted} alerts are in the tables")
        self._reader.close()

    def _audited(self, output: str) -> int:
        """Return how many rows there are in a table of the audit job; each message has one."""
        audit = self.job.settings.audit
        assert audit is not None
        try:
            return len(read_rows(Path(audit.path), output, ["offset"]))
        except BucketsError:  # There are no tables before the job has begun.
            return 0


MARK = ".buckets-demo-kafka"
PAYMENTS_A_DAY = 6_000  # How busy a day of the stream is: the shorter the demo, the fewer days it replays


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
    """Remove an earlier demo."""
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

"""The command `buckets demo-kafka`: payments through a real Kafka, evaluated as they come, while a rule changes.

It starts what a user would start by hand: a broker, `buckets run`, `buckets audit`, the console, and a change of a
rule. Payments are sent on a fixed schedule, which waits for nothing; meanwhile it says what `buckets watch` says.
"""

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.child import Child, end_all
from buckets.cli.console import Terminal
from buckets.cli.demo.demo import check_demo_folder, recall_table, write_demo_conf
from buckets.cli.demo.paced_calls import PacedCalls
from buckets.cli.rules.change import rules_of
from buckets.cli.watch import WatchedJob
from buckets.clock import epoch_ms
from buckets.config.job import load_job
from buckets.duration import DAY_MS, MINUTE_MS
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import GeneratorSettings, Stream
from buckets.generator import generate as generate_stream
from buckets.kafka.local_broker import HOST, LocalBroker, free_port
from buckets.kafka.sender import FASTEST, keyed_lines, paced_produce
from buckets.kafka.topics import create_topics
from buckets.monitor.live import Live, read_live
from buckets.monitor.pace import named_quantiles
from buckets.monitor.words import quantiles_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import read_rows
from buckets.resources import DEMO_RULES
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule

MARK = ".buckets-demo-kafka"
PAYMENTS_A_DAY = 6_000  # How busy a day of the stream is: the shorter the demo, the fewer days it replays
CHANGED_RULE, NEW_LIMIT = "payer-to-beneficiary-24h", Decimal(20_000)
MOST_WARM_UP, WARM_UP_BATCHES = 200, 10
PATIENCE_S = 300.0  # How long nothing may move before something must be wrong: a busy machine is slow to start Spark
LOOK_AGAIN_S, FIGURES_EVERY_S = 0.3, 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTCOMES = {
    "no_key": "without a key",
    "filtered": "filtered out",
    "evaluated": "evaluated",
    "late": "late",
    "too_late": "too late",
    "duplicates": "repeated",
    "collisions_not_kept": "collided and not kept",
    "dead_letters": "dead letters",
}


def demo_kafka(
    rate: Annotated[float, typer.Option(min=20, max=20_000, help="Payments a second.")] = 500,
    seconds: Annotated[int, typer.Option(min=10, max=3_600, help="For how long to send.")] = 60,
    out: Annotated[Path, typer.Option(help="A folder for everything the demo makes; an earlier demo is replaced.")] = (
        Path("demo-kafka-out")
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generator.")] = 7,
    serve: Annotated[bool, typer.Option("--serve", help="Send payments as calls to `buckets serve`.")] = False,
) -> None:
    """Evaluate payments from a real Kafka as they come, and change a rule meanwhile.

    It starts a broker, the main job and the audit job, sends the last days of
    payments with planted fraud at a steady rate, lowers the limit of a rule
    half way, and shows alerts, delays and accounts. At the end, also after
    Ctrl-C, it stops everything that it has started. The first start fetches Kafka (43 MB).
    With --serve each payment is a call, which is answered before the payment
    goes through; at the end the answers are compared with the job's alerts.

    Examples:
      buckets demo-kafka
      buckets demo-kafka --rate 2000 --seconds 120
      buckets demo-kafka --serve
      buckets watch demo-kafka-out/conf.yaml      # in another terminal, meanwhile
    """
    console = Terminal()
    _clear(out)
    stream = _generate(rate, seconds, seed)
    demo = KafkaDemo(out, console.say, PacedCalls(free_port()) if serve else None)
    with _interrupted_by_any_signal():
        try:
            demo.start()
            demo.stream(stream, rate)
            demo.catch_up()
        finally:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            console.say("stopping what was started…")
            demo.stop()
    demo.report(console, stream)
    console.say(f"tables: {out / 'tables'}; read on: buckets alerts {out / 'tables'}")


class KafkaDemo:
    """A broker, the jobs, and payments on their way."""

    def __init__(self, out: Path, say: Callable[[str], None], calls: PacedCalls | None = None) -> None:
        """Start nothing yet; payments are sent to the topic, or as calls."""
        self._out, self._say, self._calls = out, say, calls
        self._broker = LocalBroker(out / "kafka", free_port())
        self._children: list[Child] = []
        self._sender, self._ending = ThreadPoolExecutor(1), threading.Event()
        self._sent = 0
        self._figures_s = float("inf")
        self._changed: tuple[int, int] | None = None
        """When the change of a rule was sent, in ms, and the version of the rules that was in force then."""

    def start(self) -> None:
        """Start the broker, make the topics, announce the rules, and start the jobs."""
        self._say("starting a Kafka broker…")
        self._broker.start(self._say)
        own = {"../kafka-out/": "", "localhost:9092": f"{HOST}:{self._broker.port}", "interval: 5s": "interval: 2s"}
        conf = write_demo_conf(self._out, "kafka.yaml", own)
        self._job = load_job(conf)
        self._watched = WatchedJob(conf, self._job.checkpoint)
        kafka, source = self._job.settings.kafka, self._job.settings.source.topic
        assert kafka is not None
        assert source is not None
        self._kafka, self._source = kafka, source
        create_topics(kafka, self._job, partitions=1)
        self._rules = load_rules(DEMO_RULES, self._job.event_schema)
        self._apply(self._rules, "the rules of the demo")
        self._say(f"Kafka runs at {kafka.bootstrap_servers}, with {len(self._rules)} rules in its topic of rules")
        self._say(f"starting the main job and the audit job; what they say is in {self._out}/run.log and audit.log…")
        port = free_port()
        commands = [["run"], ["audit"], ["console", "--port", str(port)]]
        commands += [] if self._calls is None else [["serve", "--port", str(self._calls.port)]]
        for name, *options in commands:
            self._children.append(Child([name, str(conf), *options], self._out / f"{name}.log"))
        self._say(f"to watch from another terminal: buckets watch {conf}")
        self._say(f"or in a browser: http://{HOST}:{port}")

    def stop(self) -> None:
        """End everything that was started."""
        self._ending.set()
        self._sender.shutdown()
        end_all(self._children)
        self._broker.stop()

    def stream(self, stream: Stream, rate: float) -> None:
        """Send the payments, a few at first until both jobs are done with them, and change a rule half way.

        The first batches of a process are slow, which says nothing about the later ones.
        """
        messages, started_s = keyed_lines(stream.json_lines()), time.monotonic()
        self._wait_for(lambda: int(self._live() is not None), 1, "the main job has not started")
        portion = min(MOST_WARM_UP, stream.line_count // 10) // WARM_UP_BATCHES
        for _ in range(WARM_UP_BATCHES):
            self._sent += paced_produce(self._kafka, self._source, islice(messages, portion), FASTEST)
            self._wait_for(self._evaluated, self._sent, "{done} of the first {wanted} payments are evaluated")
        self._wait_for(lambda: self._audited(TRANSACTIONS), 1, "the audit job has not started")
        if (calls := self._calls) is not None:
            self._wait_for(lambda: int(calls.is_ready()), 1, "`buckets serve` is not ready")
        days = stream.settings.days
        self._say(
            f"ready after {time.monotonic() - started_s:.0f} s; now come {stream.line_count:,} payments of "
            f"{f'the last {days} days' if days > 1 else 'the last day'}, {rate:g} a second"
        )
        self._begun_ms, self._figures_s = epoch_ms(), time.monotonic() + FIGURES_EVERY_S
        half = (stream.line_count + self._sent) // 2
        send = partial(paced_produce, self._kafka, self._source) if self._calls is None else self._calls.send
        sending: Future[int] = self._sender.submit(send, messages, rate, self._on_sent, self._ending)
        while not sending.done():
            self._look()
            if self._sent >= half and self._changed is None:
                self._change_a_rule()
        sending.result()

    def catch_up(self) -> None:
        """Wait until all payments are evaluated, and the tables have all alerts."""
        if self._evaluated() < self._sent:
            self._say(f"all {self._sent:,} are sent; waiting for the rest to be evaluated…")
        self._wait_for(self._evaluated, self._sent, "{done} of {wanted} payments are evaluated")
        live = self._live()
        assert live is not None
        raised = int(live.data["totals"]["alerts"])
        self._wait_for(lambda: self._audited(ALERTS), raised, "{done} of {wanted} alerts are in the tables")

    def report(self, console: Terminal, stream: Stream) -> None:
        """Print what was caught, what became of every payment, and the delays."""
        columns = ["alert_id", "rule_id", "event_id", "ingested_at", "decided_at", "ruleset_version"]
        alerts, live = read_rows(self._out / "tables", ALERTS, columns), self._live()
        assert live is not None
        console.print(recall_table([vars(case) for case in stream.truth], alerts))
        self._say(f"{self._sent:,} payments sent and evaluated, {len(alerts):,} alerts; what became of every payment:")
        for name, counts in live.data["groups"].items():
            self._say(f"  {account_line(name, counts)}")
        delay = live.data["minute"]["latency_ms"]
        start = "" if live.data["written_ms"] - self._begun_ms >= MINUTE_MS else ", the start included"
        known = f"delay of all payments of the last minute{start}: {quantiles_text(delay)}"
        self._say(known if delay else "no delay is known")
        came = [alert for alert in alerts if (alert["ingested_at"] or 0) >= self._begun_ms]
        if came:
            delays_ms = np.array([alert["decided_at"] - alert["ingested_at"] for alert in came], np.int64)
            quantiles = quantiles_text(named_quantiles(delays_ms))
            self._say(f"delay of {len(came):,} alerts, from Kafka to the decision: {quantiles}")
        for line in () if self._calls is None else self._calls.report(alerts):
            self._say(line)
        if self._changed is not None:
            sent_ms, version = self._changed
            decided = [alert["decided_at"] for alert in alerts if alert["ruleset_version"] > version]
            later = RuleVersions(self._job.checkpoint).history(after=version)
            in_force_ms = later[0].made_ms if later else None
            self._say(change_line(version, sent_ms, in_force_ms, min(decided, default=None)))

    def _apply(self, rules: Sequence[Rule], reason: str) -> None:
        rules_of(self._job).change(
            [RuleChange(change="put", rule=rule, author="demo", reason=reason) for rule in rules]
        )

    def _change_a_rule(self) -> None:
        """Lower a limit; the new version of the rules is in force from the next batch on."""
        before = next(rule for rule in self._rules if rule.rule_id == CHANGED_RULE)
        assert before.limit is not None
        self._say(f"— rule {CHANGED_RULE}: the limit goes from {before.limit.value:,f} to {NEW_LIMIT:,f} —")
        limit = before.limit.model_copy(update={"value": NEW_LIMIT})
        versions = RuleVersions(self._job.checkpoint).history()
        self._changed = epoch_ms(), max((version.version for version in versions), default=0)
        self._apply([before.model_copy(update={"limit": limit})], "to see more")

    def _on_sent(self, key: str, intended_ms: int) -> None:
        self._sent += 1

    def _look(self) -> None:
        """See that all that was started runs, and say now and then what the job does."""
        for child in self._children:
            child.check()
        if time.monotonic() >= self._figures_s:
            self._figures_s = time.monotonic() + FIGURES_EVERY_S
            for line in self._watched.news():
                self._say(line)
        time.sleep(LOOK_AGAIN_S)

    def _wait_for(self, count: Callable[[], int], wanted: int, fault: str) -> None:
        done, until_s = -1, 0.0
        while (now := count()) < wanted:
            if now > done:
                done, until_s = now, time.monotonic() + PATIENCE_S
            if time.monotonic() > until_s:
                stuck = fault.format(done=f"{done:,}", wanted=f"{wanted:,}")
                message = (
                    f"{stuck}, and nothing has moved for {PATIENCE_S:.0f} s; what the jobs said is in "
                    f"{self._out}/run.log and audit.log"
                )
                raise BucketsError(message)
            self._look()

    def _live(self) -> Live | None:
        return read_live(self._job.checkpoint)

    def _evaluated(self) -> int:
        live = self._live()
        return 0 if live is None else int(live.data["totals"]["events"])

    def _audited(self, output: str) -> int:
        """Return how many rows there are in a table of the audit job; each message has one."""
        try:
            return len(read_rows(self._out / "tables", output, ["offset"]))
        except BucketsError:  # There are no tables before the job has begun.
            return 0


def change_line(version: int, sent_ms: int, in_force_ms: int | None, first_alert_ms: int | None) -> str:
    """Say from when on a changed rule was in force, which was sent under a version of the rules."""
    if in_force_ms is None:
        return "the change of the rule came too late for any payment"
    text = f"rules version {version + 1}: evaluates every payment from {in_force_ms - sent_ms:,} ms on"
    if first_alert_ms is None:
        return f"{text} after the change was sent, and has raised no alert"
    return f"{text} after the change was sent; first alert after {first_alert_ms - sent_ms:,} ms"


def account_line(name: str, counts: dict[str, int]) -> str:
    """Say what became of every payment in a group of rules: what went in is what came out."""
    out = " + ".join(f"{counts[field]:,} {outcome}" for field, outcome in _OUTCOMES.items())
    return f"{name}: {counts['events_in']:,} in = {out}"


def _clear(out: Path) -> None:
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
    before = {number: signal.signal(number, signal.default_int_handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

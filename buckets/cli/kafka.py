"""The commands `buckets kafka start`, `stop`, `status`, `topics` and `send`."""

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal, TextTable
from buckets.cli.rules.change import rules_of
from buckets.config.job import Job, load_job
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.events.arrivals import DeadLetter
from buckets.events.schema import OF_HEADERS
from buckets.kafka.local_broker import LocalBroker
from buckets.kafka.sender import FASTEST, event_messages, paced_produce
from buckets.kafka.topics import create_topics, topic_sizes, wanted_topics
from buckets.rules.role import counted_field
from buckets.stores.location import in_file_system

Folder = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="The broker's own folder.", callback=in_file_system),
]
FOLDER = Path("buckets-kafka")


def start(
    folder: Folder = FOLDER,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port for clients.")] = 9092,
) -> None:
    """Start a real Kafka broker on this machine, to try things out.

    It is Apache Kafka itself, one node, for clients on this machine only. It
    keeps its data in the folder, and runs until `buckets kafka stop`. The first
    start fetches its jars (43 MB). Nothing is removed from its topics because
    it is old.

    Examples:
      buckets kafka start
      buckets kafka start --dir /tmp/try-kafka --port 9192
    """
    console = Terminal(stderr=True)
    broker = LocalBroker(folder, port)
    with console.status("Starting Kafka…"):
        started = broker.start(console.say)
    status = broker.status()
    how = "runs" if started else "already runs"
    Terminal().say(f"Kafka {how} at {status.address}, process {status.pid}, data and log in {folder}")


def stop(folder: Folder = FOLDER) -> None:
    """Stop the broker of a folder; its data stays.

    Examples:
      buckets kafka stop
      buckets kafka stop --dir /tmp/try-kafka
    """
    with Terminal(stderr=True).status("Stopping Kafka…"):
        stopped = LocalBroker(folder).stop()
    Terminal().say(f"Kafka in {folder} is stopped" if stopped else f"no Kafka runs in {folder}")


def status(folder: Folder = FOLDER) -> None:
    """Show whether the broker runs, and what it holds; the exit code is 1 if it does not run.

    Examples:
      buckets kafka status
      buckets kafka status --dir /tmp/try-kafka
    """
    broker = LocalBroker(folder).status()
    if broker.pid is None or broker.address is None:
        was = f" (it was at {broker.address})" if broker.address else ""
        message = f"no Kafka runs in {folder}{was}; `buckets kafka start --dir {folder}` starts one"
        raise BucketsError(message)
    title = f"Kafka runs at {broker.address}, process {broker.pid}, in {folder}"
    sizes = topic_sizes(KafkaSettings(bootstrap_servers=broker.address))
    if not sizes:
        Terminal().say(f"{title}; it has no topics, `buckets kafka topics CONF` makes those of a configuration")
        return
    rows = ((topic, f"{partitions:,}", f"{messages:,}") for topic, partitions, messages in sizes)
    Terminal().print(TextTable(title, ("Topic", ">Partitions", ">Messages"), rows))


def topics(
    conf: Annotated[Path, typer.Argument(help="A configuration that names topics.")],
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of the source and of each output; a topic of rules always has one.")
    ] = 4,
) -> None:
    """Make the topics that a configuration names.

    They are made on the brokers that it names; those that exist are left as
    they are.

    Examples:
      buckets kafka topics conf/kafka.yaml
      buckets kafka topics conf/kafka.yaml --partitions 12
    """
    job = load_job(conf)
    if job.settings.kafka is None:
        message = f"configuration {conf}: names no Kafka; add `kafka: {{bootstrap_servers: HOST:PORT}}`"
        raise BucketsError(message)
    made = create_topics(job.settings.kafka, job, partitions)
    kept = len(wanted_topics(job, partitions)) - len(made)
    there = f"{kept} were there already" if kept else "none was there before"
    Terminal().say(f"made {', '.join(made)}; {there}" if made else f"nothing to make, all {kept} topics are there")


_SHOW_EVERY_S = 0.2


def send(
    events: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .jsonl(.gz), .csv(.gz) or .parquet file, sent in its order.")
    ],
    conf: Annotated[Path, typer.Option(help="A configuration whose source is a topic.")],
    rate: Annotated[float | None, typer.Option(help="Events a second; as fast as possible by default.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The field to use as message key; by default that of the first rule."),
    ] = None,
) -> None:
    """Send the events of a file to the source topic of a configuration.

    Lines of JSON are sent as they are; rows of CSV and Parquet become JSON
    objects of the fields in the event schema. Events with the same value in
    the key's field go to one partition, in their order: name the field by
    which the rules group. Ctrl-C stops it; what was sent until then has
    arrived.

    Examples:
      buckets generate --out day.jsonl
      buckets kafka send day.jsonl --conf conf/kafka.yaml --rate 500
      buckets kafka send day.parquet --conf conf/kafka.yaml --key payerId
    """
    job = load_job(conf)
    kafka, topic = _target(conf, job)
    console, field, stop = Terminal(stderr=True), key or _key_of_rules(job), threading.Event()
    pace = "as fast as it goes" if rate is None else f"{rate:,g} events a second"
    console.say(f"sending {events} to topic {topic} at {kafka.bootstrap_servers}, key {field}, {pace}")
    began_s = shown_s = time.monotonic()
    sent, bad, first_bad = 0, 0, ""

    def on_sent(key: str, due_ms: int) -> None:
        nonlocal sent, shown_s
        sent, now_s = sent + 1, time.monotonic()
        if now_s - shown_s >= _SHOW_EVERY_S:
            shown_s = now_s
            line.update(f"{sent:,} events sent, {sent / (now_s - began_s):,.0f} a second")

    def on_bad(rows: Sequence[DeadLetter]) -> None:
        nonlocal bad, first_bad
        bad, first_bad = bad + len(rows), first_bad or f"row {rows[0].position}: {rows[0].reason}"

    messages = event_messages(events, job.event_schema, field, on_bad)
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        with console.status("Sending…") as line:
            paced_produce(kafka, topic, messages, FASTEST if rate is None else rate, on_sent, stop)
    finally:
        signal.signal(signal.SIGINT, before)
    how = "stopped: " if stop.is_set() else ""
    console.say(f"{how}{sent:,} events are in topic {topic}, after {time.monotonic() - began_s:,.1f} s")
    if bad:
        console.say(f"{bad:,} rows are not events and were not sent; the first is {first_bad}")


def _target(conf: Path, job: Job) -> tuple[KafkaSettings, str]:
    kafka, source, fault = job.settings.kafka, job.settings.source, ""
    own = "let a producer of your own write the topic"
    in_headers = [name for name, origin in job.event_schema.origins.items() if origin.startswith(OF_HEADERS)]
    if source.topic is None and source.has_topics:
        fault = "its source may have several topics, and events are sent to one; name it as `topic`"
    elif kafka is None or source.topic is None:
        fault = "its source is not a topic; name one whose `source` is of kind kafka"
    elif source.format != "json":
        fault = f"source.format is {source.format}, and only JSON is sent; {own}"
    elif source.key_format != "text":
        fault = f"source.key_format is {source.key_format}, and only keys of text are sent; {own}"
    elif in_headers:
        fault = f"its event schema takes {in_headers[0]} from a header, and none are sent; {own}"
    else:
        return kafka, source.topic
    message = f"configuration {conf}: {fault}"
    raise BucketsError(message)


def _key_of_rules(job: Job) -> str:
    rules = job.rules or rules_of(job).rules
    groupings = (fields for rule in rules if rule.on == "events" for fields, _ in rule.groupings())
    field = next((counted_field(fields[0]) for fields in groupings if fields), None)
    if field is None:
        message = "there is no rule yet that groups by a field; name the field of the messages' key as --key FIELD"
        raise BucketsError(message)
    return field

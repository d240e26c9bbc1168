"""The command `buckets kafka send`: the events of a file into the source topic of a configuration."""

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status

from buckets.cli.console import Terminal
from buckets.cli.rules.request import rules_of
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.events.arrivals import DeadLetter
from buckets.events.schema import OF_HEADERS
from buckets.kafka.sender import FASTEST, paced_produce
from buckets.kafka.server_properties import event_messages

_SHOW_EVERY_S = 0.2


class SendProgress:
    """How many events have been sent, on a status line where there is a terminal; and rows that are no events."""

    def __init__(self, console: Terminal, status: Status) -> None:
        """Show progress on a console, in a status line."""
        self._console, self._status = console, status
        self._began_s = self._shown_s = time.monotonic()
        self.sent = 0
        self.bad = 0
        self._first_bad = ""

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.say(line)

    def on_sent(self, key: str, due_ms: int) -> None:
        """Count an event."""
        self.sent += 1
        now_s = time.monotonic()
        if now_s - self._shown_s >= _SHOW_EVERY_S:
            self._shown_s = now_s
            self._status.update(f"{self.sent:,} events sent, {self.sent / (now_s - self._began_s):,.0f} a second")

    def on_bad(self, rows: Sequence[DeadLetter]) -> None:
        """Count rows that are no events."""
        self._first_bad = self._first_bad or f"row {rows[0].position}: {rows[0].reason}"
        self.bad += len(rows)

    def end(self, topic: str, stopped: bool) -> None:
        """Say what has been sent."""
        seconds = time.monotonic() - self._began_s
        how = "stopped: " if stopped else ""
        self.say(f"{how}{self.sent:,} events are in topic {topic}, after {seconds:,.1f} s")
        if self.bad:
            self.say(f"{self.bad:,} rows are no events and were not sent; the first is {self._first_bad}")


def send(
    events: Annotated[
        Path, typer.Argument(metavar="FILE", help="One .jsonl(.gz), .csv(.gz) or .parquet file; sent in its order.")
    ],
    conf: Annotated[Path, typer.Option(help="A configuration whose source is a topic.")],
    rate: Annotated[
        float | None, typer.Option(help="Events a second; as fast as the broker takes them if it is left out.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="The field that is the messages' key; that of the first rule by default."),
    ] = None,
) -> None:
    """Send the events of a file to the source topic of a configuration.

    Lines of JSON are sent as they are; rows of CSV and Parquet become JSON
    objects of the fields in the event schema. Events with the same value in
    the key's field go to one partition, in their order: name the field by
    which the rules group. Ctrl-C stops it; what was sent until then has
    arrived.

    \b
    Examples:
      buckets generate --out day.jsonl
      buckets kafka send day.jsonl --conf conf/kafka.yaml --rate 500
      buckets kafka send day.parquet --conf conf/kafka.yaml --key payerId
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    kafka, topic = job.settings.kafka, job.settings.source.topic
    if topic is None and job.settings.source.has_topics:
        message = (
            f"configuration {conf}: its source may have several topics, and events are sent to one; name it as `topic`"
        )
        raise BucketsError(message)
    if kafka is None or topic is None:
        message = f"configuration {conf}: its source is no topic; name one whose `source` is of kind kafka"
        raise BucketsError(message)
    if job.settings.source.format != "json":
        message = (
            f"configuration {conf}: source.format is {job.settings.source.format}, and only JSON is sent; let a "
            "producer of your own write the topic"
        )
        raise BucketsError(message)
    if job.settings.source.key_format != "text":
        message = (
            f"configuration {conf}: source.key_format is {job.settings.source.key_format}, and only keys of text are "
            "sent; let a producer of your own write the topic"
        )
        raise BucketsError(message)
    in_headers = [name for name, origin in job.event_schema.origins.items() if origin.startswith(OF_HEADERS)]
    if in_headers:
        message = (
            f"configuration {conf}: its event schema takes {in_headers[0]} from a header, and none are sent; let a "
            "producer of your own write the topic"
        )
        raise BucketsError(message)
    console = Terminal(stderr=True)
    status = Status("Sending…", console=console)
    progress, stop = SendProgress(console, status), threading.Event()
    field = key or _key_of_rules(job)
    messages = event_messages(events, job.event_schema, field, progress.on_bad)
    pace = "as fast as it goes" if rate is None else f"{rate:,g} events a second"
    progress.say(f"sending {events} to topic {topic} at {kafka.bootstrap_servers}, key {field}, {pace}")
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        with status:
            paced_produce(kafka, topic, messages, FASTEST if rate is None else rate, progress.on_sent, stop)
    finally:
        signal.signal(signal.SIGINT, before)
    progress.end(topic, stop.is_set())


def _key_of_rules(job: Job) -> str:
    """Return the field by which the first rule groups that groups by any.

    Raises:
        BucketsError: there is none.
    """
    rules = job.rules or rules_of(job).rules
    groupings = (fields for rule in rules if rule.on == "events" for fields, _ in rule.groupings())
    field = next((fields[0] for fields in groupings if fields), None)
    if field is None:
        message = "there is no rule yet that groups by a field; name the field of the messages' key as --key FIELD"
        raise BucketsError(message)
    return field

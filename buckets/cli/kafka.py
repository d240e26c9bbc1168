"""The commands `buckets kafka start`, `stop`, `status` and `topics`; `send` has a module of its own."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal, TextTable
from buckets.config.job import load_job
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.kafka.local_broker import LocalBroker
from buckets.kafka.topics import create_topics, topic_sizes, wanted_topics
from buckets.stores.location import in_file_system

Folder = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="The folder that the broker has for itself.", callback=in_file_system),
]
FOLDER = Path("buckets-kafka")


def start(
    folder: Folder = FOLDER,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where clients reach it.")] = 9092,
) -> None:
    """Start a real Kafka broker on this machine, to try things out.

    It is Apache Kafka itself, one node, for clients on this machine only. It
    keeps its data in the folder, and runs until `buckets kafka stop`. The first
    start fetches its jars (43 MB). Nothing is removed from its topics because
    it is old.

    \b
    Examples:
      buckets kafka start
      buckets kafka start --dir /tmp/try-kafka --port 9192
    """  # noqa: D301 - click needs the backspace itself
    console = Terminal(stderr=True)
    broker = LocalBroker(folder, port)
    with console.status("Starting Kafka…"):
        started = broker.start(console.say)
    status = broker.status()
    how = "runs" if started else "already runs"
    Terminal().say(f"Kafka {how} at {status.address}, process {status.pid}, data and log in {folder}")


def stop(folder: Folder = FOLDER) -> None:
    """Stop the broker of a folder; its data stays.

    \b
    Examples:
      buckets kafka stop
      buckets kafka stop --dir /tmp/try-kafka
    """  # noqa: D301 - click needs the backspace itself
    with Terminal(stderr=True).status("Stopping Kafka…"):
        stopped = LocalBroker(folder).stop()
    Terminal().say(f"Kafka in {folder} is stopped" if stopped else f"no Kafka runs in {folder}")


def status(folder: Folder = FOLDER) -> None:
    """Show whether the broker runs, and what it holds; the exit code is 1 if it does not run.

    \b
    Examples:
      buckets kafka status
      buckets kafka status --dir /tmp/try-kafka
    """  # noqa: D301 - click needs the backspace itself
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
    numbers = ("Partitions", "Messages")
    table = TextTable(title, ("Topic", *numbers), numbers)
    for size in sizes:
        table.add_row(size.topic, f"{size.partitions:,}", f"{size.messages:,}")
    Terminal().print(table)


def topics(
    conf: Annotated[Path, typer.Argument(help="A configuration that names topics.")],
    partitions: Annotated[
        int, typer.Option(min=1, help="Of the source and of each output; a topic of rules always has one.")
    ] = 4,
) -> None:
    """Make the topics that a configuration names.

    They are made on the brokers that it names; those that exist are left as
    they are.

    \b
    Examples:
      buckets kafka topics conf/kafka.yaml
      buckets kafka topics conf/kafka.yaml --partitions 12
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    if job.settings.kafka is None:
        message = f"configuration {conf}: names no Kafka; add `kafka: {{bootstrap_servers: HOST:PORT}}`"
        raise BucketsError(message)
    made = create_topics(job.settings.kafka, job, partitions)
    kept = len(wanted_topics(job, partitions)) - len(made)
    there = f"{kept} were there already" if kept else "none was there before"
    Terminal().say(f"made {', '.join(made)}; {there}" if made else f"nothing to make, all {kept} topics are there")

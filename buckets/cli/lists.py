"""The commands `buckets lists`: what lists a job has, and changes of those that are in topics."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.list_versions import ListVersion
from buckets.cli.console import Terminal, TextTable, echo, echo_json
from buckets.cli.options import Author, Reason, author_and_reason, read_option
from buckets.config.job import Job, load_job
from buckets.config.lists import ListSettings
from buckets.errors import BucketsError
from buckets.kafka.sender import Sender
from buckets.lists.entry import RESERVED
from buckets.lists.list_file import LONGEST_KEY, read_moment_ms
from buckets.moment import iso_text, time_text

lists_app = typer.Typer(help="Show the lists of a job, and change entries of those in topics.", rich_markup_mode=None)

Conf = Annotated[Path, typer.Option(help="The job's configuration, whose `lists` say where each list is.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A list, as the configuration names it.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of an entry.")]


@lists_app.command()
def show(
    conf: Conf,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A list.")] = None,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="A key of it, whose entry is shown.")] = None,
) -> None:
    """Show the lists of a job as its latest batches see them, or an entry of one.

    \b
    Examples:
      buckets lists show --conf conf/kafka.yaml
      buckets lists show payroll p17 --conf conf/kafka.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    checkpoint = Checkpoint(job.checkpoint)
    if name is not None:
        _show_entry(job, checkpoint, name, key)
        return
    if not job.settings.lists:
        echo(f"configuration {conf} has no lists")
        return
    faults = checkpoint.lists.faults()
    columns = ("List", "Kind", "From", "Entries", "Version", "Latest change (UTC)", "Fault")
    table = TextTable(f"Lists of {conf}", columns, ("Entries", "Version"))
    for list_name, settings in job.settings.lists.items():
        cells = [list_name, settings.kind, settings.place, *_version_cells(checkpoint.lists.latest(list_name))]
        table.add_row(*map(Text, [*cells, faults.get(list_name, "")]))
    Terminal().print(table)


def _version_cells(version: ListVersion | None) -> list[str]:
    if version is None:
        return ["not read yet", "", ""]
    changed = f"{time_text(version.made_ms)}: {version.changed:,}"
    return [f"{version.entries:,}", str(version.number), changed]


def _show_entry(job: Job, checkpoint: Checkpoint, name: str, key: str | None) -> None:
    """Print an entry as JSON."""
    _settings_of(job, name)
    latest = checkpoint.lists.latest(name)
    if key is None or latest is None:
        message = f"list {name!r}: " + ("name a key of it" if key is None else "no batch has seen it yet; run the job")
        raise BucketsError(message)
    entry = checkpoint.lists.index(name, latest.number).get(key)
    if entry is None:
        message = f"list {name!r}: version {latest.number} has no entry {key!r}"
        raise BucketsError(message)
    until = {} if entry.until_ms is None else {"until": iso_text(entry.until_ms)}
    signed = {field: text for field in ("author", "reason") if (text := getattr(entry, field))}
    echo_json({"key": key, **until, **signed, **entry.values}, indent=None)


@lists_app.command()
def put(
    name: Name,
    key: Key,
    conf: Conf,
    until: Annotated[
        str | None, typer.Option(help="From which event time on it does not count any more, as in 2026-12-31T18:00Z.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="A value for `lookup`; may be given several times.")
    ] = None,
    author: Author = None,
    reason: Reason = "",
) -> None:
    """Put an entry into a list that is in a topic; a running job sees it with one of its next batches.

    \b
    Examples:
      buckets lists put payroll p17 --reason "salaries" --conf conf/kafka.yaml
      buckets lists put merchants m9 --value category=casino --until 2027-01-01 --conf conf/kafka.yaml
    """  # noqa: D301 - click needs the backspace itself
    fields: dict[str, Any] = _values(value or [])
    if until is not None:
        read_option("--until", until, read_moment_ms)
        fields["until"] = until
    fields |= {field: text for field, text in author_and_reason(author, reason).items() if text}
    _send(load_job(conf), name, key, json.dumps(fields, ensure_ascii=False))
    echo(f"list {name}: entry {key!r} is put")


def _values(given: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for option in given:
        name, separator, text = option.partition("=")
        if not separator or not name or name in RESERVED or name in values:
            message = f"--value {option}: write NAME=TEXT, each name once and none of {', '.join(RESERVED)}"
            raise BucketsError(message)
        values[name] = text
    return values


@lists_app.command()
def remove(name: Name, key: Key, conf: Conf) -> None:
    """Remove an entry from a list that is in a topic.

    \b
    Examples:
      buckets lists remove payroll p17 --conf conf/kafka.yaml
    """  # noqa: D301 - click needs the backspace itself
    _send(load_job(conf), name, key, None)
    echo(f"list {name}: entry {key!r} is removed")


def _settings_of(job: Job, name: str) -> ListSettings:
    if name not in job.settings.lists:
        there = ", ".join(sorted(job.settings.lists)) or "none"
        message = f"there is no list {name!r}; lists of the configuration: {there}"
        raise BucketsError(message)
    return job.settings.lists[name]


def _send(job: Job, name: str, key: str, value: str | None) -> None:
    settings = _settings_of(job, name)
    if settings.topic is None:
        message = f"list {name!r} is in {settings.place}, and this command changes lists in topics; change it there"
        raise BucketsError(message)
    if not 0 < len(key) <= LONGEST_KEY:
        message = f"list {name!r}: a key has 1 to {LONGEST_KEY:,} characters, and {len(key):,} are given"
        raise BucketsError(message)
    assert job.settings.kafka is not None
    sender = Sender(job.settings.kafka)
    sender.send(settings.topic, key, value, {})
    sender.flush()

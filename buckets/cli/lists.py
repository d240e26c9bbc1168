"""The commands `buckets lists`: what lists a job has, and changes of those that are in topics."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from buckets.changes.list_entries import entry_fields, latest_entry, list_settings, put_entry, read_values, remove_entry
from buckets.checkpoint.driver_state import Checkpoint
from buckets.cli.console import Terminal, TextTable, echo, echo_json
from buckets.cli.options import Author, Reason, author_and_reason, read_option
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.moment import parse_moment_ms, time_text

Conf = Annotated[Path, typer.Option(help="The job's configuration, whose `lists` say where each list is.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A list, as the configuration names it.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of an entry.")]


def show(
    conf: Conf,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A list.")] = None,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="A key of the list, to show its entry.")] = None,
) -> None:
    """Show the lists of a job as its latest batches see them, or an entry of one.

    Examples:
      buckets lists show --conf conf/kafka.yaml
      buckets lists show payroll p17 --conf conf/kafka.yaml
      buckets lists show pairs '["p1","b7"]' --conf conf/kafka.yaml
    """
    job = load_job(conf)
    if name is not None:
        _show_entry(job, name, key)
        return
    if not job.settings.lists:
        echo(f"configuration {conf} has no lists")
        return
    kept = Checkpoint(job.checkpoint).lists
    faults = kept.faults()
    columns = ("List", "Kind", "From", ">Entries", ">Version", "Latest change (UTC)", "Fault")
    table = TextTable(f"Lists of {conf}", columns)
    for list_name, settings in job.settings.lists.items():
        version, of_version = kept.latest(list_name), ["not read yet", "", ""]
        if version is not None:
            changed = f"{time_text(version.made_ms)}: {version.changed:,}"
            of_version = [f"{version.entries:,}", str(version.number), changed]
        cells = [list_name, settings.kind, settings.place, *of_version, faults.get(list_name, "")]
        table.add_row(*map(Text, cells))
    Terminal().print(table)


def _show_entry(job: Job, name: str, key: str | None) -> None:
    list_settings(job, name)
    if key is None:
        message = f"list {name!r}: name a key of it"
        raise BucketsError(message)
    found = latest_entry(job, name, key)
    if found is None:
        message = f"list {name!r}: its latest version has no entry {key!r}"
        raise BucketsError(message)
    echo_json({"key": found[0], **entry_fields(found[1])}, indent=None)


def put(
    name: Name,
    key: Key,
    conf: Conf,
    until: Annotated[
        str | None, typer.Option(help="The event time at which it expires, as in 2026-12-31T18:00Z.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="A value for `lookup`; repeatable.")
    ] = None,
    author: Author = None,
    reason: Reason = "",
) -> None:
    """Put an entry into a list that is in a topic; a running job sees it with one of its next batches.

    Examples:
      buckets lists put payroll p17 --reason "salaries" --conf conf/kafka.yaml
      buckets lists put merchants m9 --value category=casino --until 2027-01-01 --conf conf/kafka.yaml
    """
    fields: dict[str, Any] = read_values(value or [], "--value")
    if until is not None:
        read_option("--until", until, parse_moment_ms)
        fields["until"] = until
    fields |= {field: text for field, text in author_and_reason(author, reason).items() if text}
    put_entry(load_job(conf), name, key, fields)
    echo(f"list {name}: entry {key!r} is put")


def remove(name: Name, key: Key, conf: Conf, author: Author = None, reason: Reason = "") -> None:
    """Remove an entry from a list that is in a topic.

    Examples:
      buckets lists remove payroll p17 --reason "left in May" --conf conf/kafka.yaml
    """
    remove_entry(load_job(conf), name, key, author_and_reason(author, reason))
    echo(f"list {name}: entry {key!r} is removed")

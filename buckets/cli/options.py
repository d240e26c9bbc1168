"""Options that several commands take, and how their values are read; an error names the option."""

import getpass
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from buckets.changes.snoozing import Key, read_key
from buckets.cli.console import Terminal, echo
from buckets.config.engine import EngineSettings
from buckets.config.job import Job, load_schema_and_engine
from buckets.config.settings import MetricsSettings
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema, load_event_schema
from buckets.expressions.expression import LIST_NAME
from buckets.lists.index import ListIndex
from buckets.lists.list_file import load_list
from buckets.moment import TimeRange, parse_moment_ms
from buckets.resources import DEFAULT_SCHEMA
from buckets.rule_files.yaml_rules import RuleFile, read_rule_files, unread_folders
from buckets.rules.change import short_text
from buckets.rules.rule import Rule
from buckets.stores.location import location

if TYPE_CHECKING:  # Most commands score nothing.
    from buckets.history.scoring import ScoreArchive

JobConf = Annotated[Path, typer.Argument(help="The job's configuration.")]
ArchivedConf = Annotated[Path, typer.Argument(metavar="CONF", help="A configuration with `archive`.")]
SchemaFile = Annotated[Path | None, typer.Option(help="An event schema to check the fields of rules against.")]
From = Annotated[
    str | None, typer.Option("--from", help="The first event time, as in 2026-01-03 or 2026-01-03T10:00Z.")
]
To = Annotated[str | None, typer.Option("--to", help="The end of the event times, exclusive.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
Author = Annotated[str | None, typer.Option(help="Who asks for the change; your login name by default.")]
Reason = Annotated[str, typer.Option(help="Why; the history shows it.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=1, max=65_535, help="Serve /metrics, /healthz and /readyz on this port; overrides `metrics.port`."
    ),
]
HistoryMaster = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Score the archive with Spark, as at spark://HOST:7077 or local[4]."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master, as in spark://HOST:7077 or local[4]; overrides `spark.master`."),
]

Value = TypeVar("Value")
_MANY_ROWS = 5_000_000  # Archives of more rows are better scored by Spark


def given_rule_files(path: Path, schema: EventSchema | None) -> tuple[RuleFile, ...]:
    """Read a rule file, or all files of a folder; name the folders in it that hold others, which are not read."""
    files, folders = read_rule_files(path, schema), unread_folders(path)
    if folders:
        named = ("folder " if len(folders) == 1 else "folders ") + ", ".join(folders)
        echo(f"{path}: rules in {named} are not read with it; name a folder to read its rules", err=True)
    return files


def given_rules(path: Path, schema: EventSchema | None) -> tuple[Rule, ...]:
    """Read rules as `given_rule_files` does."""
    return tuple(rule for file in given_rule_files(path, schema) for rule in file.rules)


def read_option(option: str, text: str, read: Callable[[str], Value]) -> Value:
    """Return the value of an option such as `--every`; the ValueError of its reader says what is wrong with it."""
    try:
        return read(text)
    except ValueError as error:
        message = f"{option}: {error}"
        raise BucketsError(message) from None


def with_master(job: Job, master: str | None) -> Job:
    """Return a job with the master of `--master` if that is given."""
    if master is None:
        return job
    spark = {**job.settings.spark, "spark.master": master}
    return job.model_copy(update={"settings": job.settings.model_copy(update={"spark": spark})})


def metrics_at(settings: MetricsSettings | None, port: int | None) -> MetricsSettings | None:
    """Return where metrics are told: as a configuration says, at the port of `--metrics-port` if that is given."""
    if port is None:
        return settings
    return MetricsSettings(port=port) if settings is None else settings.model_copy(update={"port": port})


def key_of(text: str, kinds: Mapping[str, str]) -> Key:
    """Return the key that `--key` names, its values of the kinds of their fields."""
    return read_option("--key", text, lambda written: read_key(written, kinds))


def range_ms(begin: str | None, end: str | None) -> TimeRange:
    """Return the event times that `--from` and `--to` name."""
    from_ms = None if begin is None else read_option("--from", begin, parse_moment_ms)
    to_ms = None if end is None else read_option("--to", end, parse_moment_ms)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        message = f"--from {begin} is not before --to {end}; no event is in between"
        raise BucketsError(message)
    return TimeRange(from_ms, to_ms)


def scoring_of(job: Job, master: str | None, rows: int, say: Callable[[str], None]) -> "ScoreArchive":
    """Return what scores the archive of a job, of so many rows: Spark at the master of `--master`, or this process."""
    from buckets.history.scoring import score_archive

    if master is not None:
        from buckets.spark.history import scoring_at

        return scoring_at(master, job.settings.spark)
    if rows > _MANY_ROWS:
        say(f"{rows:,} rows are scored by one process; --master local[*] shares them among cores, or machines")
    return score_archive


def author_and_reason(author: str | None, reason: str) -> dict[str, Any]:
    """Return the author and reason of a change."""
    read_option("--author", author or "", short_text)
    read_option("--reason", reason, short_text)
    return {"author": login_name() if author is None else author, "reason": reason}


def login_name() -> str:
    """Return the name of the person who runs this; empty where it is not known."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


ListOption = Annotated[
    list[str] | None,
    typer.Option("--list", metavar="NAME=FILE", help="A list that rules look into, in a CSV or YAML file."),
]


def given_lists(options: list[str] | None) -> dict[str, ListIndex]:
    """Read the lists that options `--list` name, by name."""
    return {name: load_list(file) for name, file in list_files(options).items()}


def list_files(options: list[str] | None) -> dict[str, Path]:
    """Return the files of lists as options `--list` name them, by name."""
    files: dict[str, Path] = {}
    for option in options or []:
        name, separator, file = option.partition("=")
        if not separator or LIST_NAME.fullmatch(name) is None or not file:
            message = f"--list {option}: write NAME=FILE, as in payroll=payroll.csv; a name has letters, digits and _"
            raise BucketsError(message)
        if name in files:
            message = f"--list {option}: list {name!r} is given twice; leave one of them out"
            raise BucketsError(message)
        files[name] = location(file)
    return files


SchemaOption = Annotated[
    Path | None, typer.Option(help="The event schema; by default that of --conf, or schemas/transaction.yaml.")
]


@contextmanager
def event_schema(schema: Path | None, conf: Path | None = None) -> Iterator[tuple[EventSchema, EngineSettings]]:
    """Read the event schema and the settings that options name; what does not fit the schema is found inside the block.

    If the default is taken, that is said in an error about the schema, and on a terminal at the end of the block.

    Args:
        schema: the event schema; None for that of the configuration, or the default.
        conf: a configuration, of which `schema` and `engine` are used.
    """
    if conf is not None:
        of_conf, engine = load_schema_and_engine(conf)
        yield (of_conf if schema is None else load_event_schema(schema)), engine
        return
    chosen = load_event_schema(schema or DEFAULT_SCHEMA)
    try:
        yield chosen, EngineSettings()
    except BucketsError as error:
        if schema is not None or "event schema" not in error.message:
            raise
        message = f"{error.message}; that is the default, name yours with --schema"
        raise BucketsError(message) from None
    console = Terminal(stderr=True)
    if schema is None and console.is_terminal:
        console.say(f"event schema {chosen.name} is taken, the default; --schema names another one")

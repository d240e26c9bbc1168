"""A job: its configuration (`conf/*.yaml`) with the schema and rules that it names, checked against one another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from buckets.config.engine import EngineSettings
from buckets.config.lists import check_lists
from buckets.config.raw_windows import check_raw_windows
from buckets.config.settings import JobSettings, SourceSettings
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema, load_event_schema
from buckets.events.source_files import is_hidden
from buckets.files import check_local
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.rules.rule import Rule
from buckets.rules.rule_set import canonical_group_id, group_name
from buckets.yaml_file import load_model

_PATTERN_MARKS = "*?[]{}\\"
WHAT = "configuration"
WITH_VARIABLES = ("kafka", "spark")
"""What may name environment variables; those of `spark` are replaced by Spark, or not."""
Check = Callable[[], None]


class Job(BaseModel):
    """A configuration with what it points to: schema and rules loaded, paths absolute.

    Rules are those of a file or folder; a topic or a table is read when the job starts.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    settings: JobSettings
    event_schema: EventSchema
    rules: tuple[Rule, ...]
    checkpoint: Path


def load_job(path: Path) -> Job:
    """Read a configuration, and the schema and rules that it names.

    Raises:
        BucketsError: a file cannot be read or is not valid; says which, where and why.
    """
    settings = load_settings(path)
    base = path.resolve().parent
    schema = load_event_schema(base / settings.event_schema)
    rules: tuple[Rule, ...] = ()
    if settings.rules.path is not None:
        rules = load_rule_files(Path(settings.rules.path), schema)
    checks = (
        settings_checks(path, settings),
        group_checks(path, settings, schema, rules),
        rule_checks(path, settings, schema, rules),
    )
    for check in chain(*checks):
        check()
    return Job(settings=settings, event_schema=schema, rules=rules, checkpoint=base / settings.checkpoint)


def load_settings(path: Path) -> JobSettings:
    """Read a configuration, and make the paths in it absolute but for those of schema and checkpoint.

    Raises:
        BucketsError: it cannot be read or is not valid, or a path has a scheme.
    """
    as_written = load_model(path, JobSettings, WHAT, WITH_VARIABLES)
    _check_local(path, as_written)
    return _absolute(as_written, path.resolve().parent)


def settings_checks(path: Path, settings: JobSettings) -> Iterator[Check]:
    """Return what is to be checked of settings beyond their form; each raises a BucketsError.

    Args:
        path: the configuration.
        settings: what it says, with absolute paths.
    """
    if settings.source.kind == "kafka":
        return
    yield partial(_check_no_pattern, path, settings.source)
    if settings.source.kind == "delta":
        return
    written = {"checkpoint": path.resolve().parent / settings.checkpoint}
    if settings.output.kind == "delta":
        written["output.path"] = Path(settings.output.path)
    if settings.verdicts.table is not None:
        written["verdicts.table"] = Path(settings.verdicts.table)
    if settings.archive is not None:
        written["archive.path"] = Path(settings.archive.path)
    for name, folder in written.items():
        yield partial(_check_apart, path, settings.source, name, folder)


def group_checks(path: Path, settings: JobSettings, schema: EventSchema, rules: Sequence[Rule]) -> Iterator[Check]:
    """Return what is to be checked of settings for groups of rules of a file; each raises a BucketsError."""
    if settings.rules.path is not None:
        yield partial(check_precision_groups, f"configuration {path}", settings.engine, rules, schema)


def rule_checks(path: Path, settings: JobSettings, schema: EventSchema, rules: Sequence[Rule]) -> Iterator[Check]:
    """Return what is to be checked of rules of a file under the settings of a job; each raises a BucketsError.

    Args:
        path: the configuration.
        settings: what it says.
        schema: the event schema.
        rules: the rules.
    """
    origin = f"configuration {path}"
    for rule in rules:
        yield partial(check_raw_windows, origin, (rule,), settings.engine, schema)
        yield partial(check_lists, origin, (rule,), settings.lists)


def results_folder(job: Job) -> Path:
    """Return the folder of a job's tables of alerts: its output, or the tables of its audit.

    Raises:
        BucketsError: its alerts go to topics, of which no tables are kept.
    """
    folder = kept_results(job)
    if folder is None:
        message = "the job's alerts go to topics, and no tables of them are kept; add `audit` and run `buckets audit`"
        raise BucketsError(message)
    return folder


def kept_results(job: Job) -> Path | None:
    """Return what `results_folder` does; None where the job's alerts go to topics, of which no tables are kept."""
    settings = job.settings
    if settings.output.kind == "delta":
        return Path(settings.output.path)
    return None if settings.audit is None else Path(settings.audit.path)


def _check_local(path: Path, settings: JobSettings) -> None:
    """See that no path has a scheme: a folder of that name would be made here.

    Raises:
        BucketsError: one has; says which.
    """
    paths = {
        "schema": settings.event_schema,
        "source.path": settings.source.path,
        "checkpoint": settings.checkpoint,
        "output.path": settings.output.path,
        "rules.path": settings.rules.path,
        "rules.table": settings.rules.table,
        "verdicts.table": settings.verdicts.table,
        **{f"lists.{name}.path": each.path for name, each in settings.lists.items()},
    }
    if settings.audit is not None:
        paths |= {"audit.path": settings.audit.path, "audit.checkpoint": settings.audit.checkpoint}
    if settings.archive is not None:
        paths["archive.path"] = settings.archive.path
    for name, given in paths.items():
        check_local(f"configuration {path}: {name}", given or "")


def _absolute(settings: JobSettings, base: Path) -> JobSettings:
    """The settings with absolute paths of all that it names; relative ones begin at `base`."""
    found: dict[str, Any] = {}
    if settings.source.kind != "kafka":
        found["source"] = settings.source.model_copy(update={"path": str(base / settings.source.path)})
    if settings.output.kind != "kafka":
        found["output"] = settings.output.model_copy(update={"path": str(base / settings.output.path)})
    origins = {name: getattr(settings.rules, name) for name in ("path", "table")}
    paths = {name: str(base / origin) for name, origin in origins.items() if origin is not None}
    found["rules"] = settings.rules.model_copy(update=paths)
    found["lists"] = {
        name: each if each.kind == "kafka" else each.model_copy(update={"path": str(base / each.path)})
        for name, each in settings.lists.items()
    }
    if settings.verdicts.table is not None:
        found["verdicts"] = settings.verdicts.model_copy(update={"table": str(base / settings.verdicts.table)})
    if settings.audit is not None:
        folders = {"path": str(base / settings.audit.path), "checkpoint": str(base / settings.audit.checkpoint)}
        found["audit"] = settings.audit.model_copy(update=folders)
    if settings.archive is not None:
        found["archive"] = settings.archive.model_copy(update={"path": str(base / settings.archive.path)})
    return settings.model_copy(update=found)


def check_source(path: Path, job: Job) -> None:
    """See that there is a source to read; what has been read is known without it.

    Args:
        path: the configuration.
        job: what it says.

    Raises:
        BucketsError: its folder or table does not exist.
    """
    source = job.settings.source
    if source.kind != "kafka" and not Path(source.path).exists():
        message = f"configuration {path}: source.path: {source.path} does not exist; create it or correct the path"
        raise BucketsError(message)


def _check_no_pattern(path: Path, source: SourceSettings) -> None:
    folder = Path(source.path)
    marks = [mark for mark in _PATTERN_MARKS if mark in source.path]
    if marks and source.kind != "delta":
        message = (
            f"configuration {path}: source.path: {folder} holds {marks[0]}, so Spark would take it for a pattern of "
            "many paths; rename the folder"
        )
        raise BucketsError(message)


def _check_apart(path: Path, source: SourceSettings, name: str, folder: Path) -> None:
    """See that a job does not write into its own source; Spark does not look into hidden folders."""
    below, resolved = Path(source.path).resolve(), folder.resolve()
    if below in resolved.parents and not any(map(is_hidden, resolved.relative_to(below).parts)):
        message = (
            f"configuration {path}: {name}: {folder} lies in source.path, where Spark would take its files for "
            "new ones of the source; move it elsewhere, with all that is in it"
        )
        raise BucketsError(message)


def check_precision_groups(origin: str, engine: EngineSettings, rules: Iterable[Rule], schema: EventSchema) -> None:
    """Check that each precision for a group is for a group of the rules, and the only one for it.

    Args:
        origin: where the settings come from, for the error.
        engine: the settings.
        rules: the rules.
        schema: the event schema.

    Raises:
        BucketsError: no rule has the group, or it is given twice.
    """
    groupings = [grouping for rule in rules if rule.on == "events" for grouping in rule.groupings()]
    known = {canonical_group_id(fields, where, schema): group_name(fields, where) for fields, where in groupings}
    identities = [group.group_id(schema) for group in engine.precision.groups]
    for index, (group, identity) in enumerate(zip(engine.precision.groups, identities, strict=True)):
        location = f"{origin}: engine.precision.groups[{index + 1}]"
        if identity in identities[:index]:
            message = f"{location}: the same group is given twice"
            raise BucketsError(message)
        if identity not in known:
            groups = "; ".join(sorted(set(known.values())))
            message = f"{location}: no rule has the group {group.name!r}; groups of the rules: {groups}"
            raise BucketsError(message)


def load_engine_settings(path: Path) -> EngineSettings:
    """Read the `engine` part of a configuration; other parts are not looked at.

    Raises:
        BucketsError: the file cannot be read, or its engine part is not valid.
    """
    return load_model(path, _EngineOnly, "configuration").engine


def load_schema_and_engine(path: Path) -> tuple[EventSchema, EngineSettings]:
    """Read the event schema that a configuration names, and its `engine` part; other parts are not looked at.

    Raises:
        BucketsError: a file cannot be read or is not valid.
    """
    settings = load_model(path, _SchemaAndEngine, "configuration")
    return load_event_schema(path.resolve().parent / settings.event_schema), settings.engine


class _EngineOnly(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    engine: EngineSettings = EngineSettings()


class _SchemaAndEngine(_EngineOnly):
    event_schema: str = Field(alias="schema", min_length=1)

"""A job: its configuration (`conf/*.yaml`) with the schema and rules that it names, checked against one another."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from buckets.config.engine import EngineSettings, check_raw_windows
from buckets.config.environment import Settings
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.config.lists import check_lists
from buckets.config.settings import JobSettings
from buckets.config.source import CsvSource, KeyFormat, SourceSettings
from buckets.errors import BucketsError, ConfigurationError, Outage
from buckets.events.decoded import AVRO, PROTOBUF, PinnedProtobuf, SchemaError, WriterSchema
from buckets.events.schema import KEY, OF_ENVELOPE, OF_KEY, ROW_IDS, EventSchema, load_event_schema
from buckets.events.source_files import is_hidden
from buckets.extras import check_format
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.rules.group import canonical_group_id, group_name
from buckets.rules.rule import Rule
from buckets.stores.location import location
from buckets.stores.store_path import StorePath
from buckets.yaml_file import load_model, read_content, read_text

_PATTERN_MARKS = "*?[]{}\\"
WHAT = "configuration"
AVRO_SCHEMA, PROTOBUF_SCHEMA = "Avro schema", "Protobuf schema"
_PATHS = {
    "source": ["path", "schema_file"],
    "output": ["path"],
    "rules": ["path", "table"],
    "verdicts": ["table"],
    "audit": ["path", "checkpoint"],
    "archive": ["path"],
}
"""The paths in the parts of a configuration, beside those of lists."""
Check = Callable[[], None]


class Job(BaseModel):
    """A configuration with what it points to: schema and rules loaded, paths absolute.

    Rules are those of a file or folder; a topic or a table is read when the job starts. `avro_schema` is the text of
    the source's schema file, if it has one in Avro, `protobuf` has that of one for Protobuf. `path` is the
    configuration itself, None of one that does not lie in a file.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    settings: JobSettings
    event_schema: EventSchema
    rules: tuple[Rule, ...]
    checkpoint: Path
    avro_schema: str | None = None
    protobuf: PinnedProtobuf | None = None
    path: Path | None = None

    @property
    def key_format(self) -> KeyFormat:
        """How the keys of messages are written."""
        return self.settings.source.key_format

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The topics whose events only fill timelines."""
        return self.settings.source.unjudged

    @classmethod
    def of(cls, path: Path, settings: JobSettings, schema: EventSchema, rules: tuple[Rule, ...]) -> "Job":
        """Return the job of a configuration that has been read, with all that it names."""
        checkpoint = location(settings.checkpoint, path.resolve().parent)
        source = settings.source
        file = None if source.schema_file is None else location(source.schema_file)
        is_avro = source.format == "avro"
        return cls(
            settings=settings,
            event_schema=schema,
            rules=rules,
            checkpoint=checkpoint,
            avro_schema=read_text(file, AVRO_SCHEMA) if file is not None and is_avro else None,
            protobuf=_pinned(file, source.message) if file is not None and not is_avro else None,
            path=path,
        )

    @property
    def schema_path(self) -> Path:
        """The file of the event schema, of a configuration that lies in a file."""
        assert self.path is not None
        return _schema_path(self.path, self.settings.event_schema)

    @property
    def protobuf_path(self) -> Path | None:
        """The file of the schema of values in Protobuf; None of all others."""
        source = self.settings.source
        is_one = source.schema_file is not None and source.format == "protobuf"
        return location(str(source.schema_file)) if is_one else None

    def with_schema_of_now(self) -> "Job":
        """Return the job with its event schema, and the schema of values in Protobuf, as the files have them now.

        Raises:
            BucketsError: a file cannot be read, or what it says is not valid, or not for this source.
        """
        assert self.path is not None
        schema, protobuf, file = load_event_schema(self.schema_path), self.protobuf, self.protobuf_path
        for check in schema_checks(self.path, self.settings, schema):
            check()
        if file is not None:
            _check_protobuf(self.settings.source.message, file)
            protobuf = _pinned(file, self.settings.source.message)
        return self.model_copy(update={"event_schema": schema, "protobuf": protobuf})


@contextlib.contextmanager
def of_configuration() -> Iterator[None]:
    """Take what is wrong for a fault of a configuration, so that a command ends with the code of that.

    Raises:
        ConfigurationError: something is wrong.
        Outage: a store does not answer, of which the configuration is not to blame.
    """
    try:
        yield
    except Outage:
        raise
    except BucketsError as error:
        raise ConfigurationError(error.message) from error


@of_configuration()
def load_job(path: Path) -> Job:
    """Read a configuration, and the schema and rules that it names.

    Raises:
        ConfigurationError: a file cannot be read or is not valid; says which, where and why.
    """
    settings = with_absolute_paths(path, load_model(path, JobSettings, WHAT))
    schema = load_event_schema(_schema_path(path, settings.event_schema))
    rules = () if settings.rules.path is None else load_rule_files(location(settings.rules.path), schema)
    checks = (
        settings_checks(path, settings),
        schema_checks(path, settings, schema),
        group_checks(path, settings, schema, rules),
        rule_checks(path, settings, schema, rules),
    )
    for check in chain(*checks):
        check()
    return Job.of(path, settings, schema, rules)


def _schema_path(path: Path, given: str) -> Path:
    """Return where the event schema of a configuration lies."""
    return location(given, path.resolve().parent)


def with_absolute_paths(path: Path, settings: JobSettings) -> JobSettings:
    """Make the paths in a configuration absolute but for those of schema and checkpoint.

    Raises:
        BucketsError: a path has a scheme.
    """
    origin, base = f"configuration {path}", path.resolve().parent
    _placed(f"{origin}: schema", settings.event_schema, base)
    _placed(f"{origin}: checkpoint", settings.checkpoint, base)

    def below(name: str, part: BaseModel, fields: Sequence[str]) -> BaseModel:
        paths = {field: getattr(part, field) for field in fields if getattr(part, field)}
        placed = {field: str(_placed(f"{origin}: {name}.{field}", given, base)) for field, given in paths.items()}
        return part.model_copy(update=placed)

    parts = {name: getattr(settings, name) for name in _PATHS}
    update: dict[str, Any] = {name: below(name, part, _PATHS[name]) for name, part in parts.items() if part is not None}
    update["lists"] = {name: below(f"lists.{name}", each, ["path"]) for name, each in settings.lists.items()}
    return settings.model_copy(update=update)


def places_of(settings: JobSettings) -> list[Path]:
    """Return where a job reads and writes besides its checkpoint; paths of the settings are absolute."""
    parts = [(getattr(settings, name), fields) for name, fields in _PATHS.items()]
    given = [getattr(part, field) for part, fields in parts if part is not None for field in fields]
    given += [each.path for each in settings.lists.values()]
    return [location(path) for path in given if path]


def _placed(origin: str, given: str, base: Path) -> Path:
    """Return where a path of a configuration points to."""
    try:
        return location(given, base)
    except BucketsError as error:
        message = f"{origin}: {error.message}"
        raise BucketsError(message) from None


def settings_checks(path: Path, settings: JobSettings) -> Iterator[Check]:
    """Return what is to be checked of settings beyond their form; each raises a BucketsError."""
    for written_in in dict.fromkeys((settings.source.format, settings.source.key_format, settings.output.format)):
        yield partial(_check_format, path, written_in)
    if settings.source.schema_file is not None:
        file = location(settings.source.schema_file)
        check = _check_avro if settings.source.format == "avro" else partial(_check_protobuf, settings.source.message)
        yield partial(check, file)
    given = {
        "checkpoint": location(settings.checkpoint, path.resolve().parent),
        "output.path": settings.output.folder,
        "verdicts.table": settings.verdicts.table,
        "archive.path": None if settings.archive is None else settings.archive.path,
        "audit.path": None if settings.audit is None else settings.audit.path,
        "audit.checkpoint": None if settings.audit is None else settings.audit.checkpoint,
    }
    written = {name: location(str(folder)) for name, folder in given.items() if folder is not None}
    yield partial(_check_not_the_same, path, written)
    source = settings.source.folder
    if source is None:
        return
    yield partial(_check_no_pattern, path, source)
    for name, folder in written.items():
        yield partial(_check_apart, path, source, name, folder)


def schema_checks(path: Path, settings: JobSettings, schema: EventSchema) -> Iterator[Check]:
    """Return what is to be checked of an event schema under the settings of a job; each raises a BucketsError."""
    yield partial(_check_rows_have_numbers, path, settings.source, schema)
    if isinstance(settings.source, CsvSource):
        yield partial(_check_encoding, path, schema)
    yield partial(_check_records, path, settings.source, schema)
    if not settings.source.has_topics:
        yield partial(_check_all_in_values, path, settings.source, schema)
        return
    if settings.source.envelope is None:
        yield partial(_check_no_envelope, path, schema)
    yield partial(_check_keys, path, settings.source, schema)


def _check_rows_have_numbers(path: Path, source: SourceSettings, schema: EventSchema) -> None:
    if schema.identity.row and source.folder is None:
        message = f"configuration {path}: {source.place} has no rows that keep their number, and {ROW_IDS}"
        raise BucketsError(message)


def _check_encoding(path: Path, schema: EventSchema) -> None:
    if not schema.csv.is_by_line:
        message = (
            f"configuration {path}: event schema {schema.name!r} has csv.encoding {schema.csv.encoding}, in which a "
            "job does not see where lines end; let files be written as utf-8, or as cp1252 and the like"
        )
        raise BucketsError(message)


def _check_all_in_values(path: Path, source: SourceSettings, schema: EventSchema) -> None:
    for name, origin in schema.beside_value.items():
        message = (
            f"configuration {path}: event schema {schema.name!r} takes {name} from {origin} of a message, and a source "
            f"of kind {source.kind} has none; leave it out of `origins` or `event_time` there"
        )
        raise BucketsError(message)


def _check_records(path: Path, source: SourceSettings, schema: EventSchema) -> None:
    if schema.records is not None and source.kind != "json":
        message = (
            f"configuration {path}: event schema {schema.name!r} has `records: {json.dumps(schema.records)}`, which is "
            f"for JSON files, and the source is of kind {source.kind}; leave `records` out"
        )
        raise BucketsError(message)


def _check_no_envelope(path: Path, schema: EventSchema) -> None:
    for name, origin in schema.origins.items():
        if origin.startswith(OF_ENVELOPE):
            message = (
                f"configuration {path}: event schema {schema.name!r} takes {name} from {origin}, and the source has no "
                "envelope; name it as source.envelope, or correct `origins`"
            )
            raise BucketsError(message)


def _check_keys(path: Path, source: SourceSettings, schema: EventSchema) -> None:
    for name, origin in schema.origins.items():
        takes = f"configuration {path}: event schema {schema.name!r} takes {name} from {origin}"
        if origin.startswith(OF_KEY) and source.key_format == "text":
            message = f"{takes}, and keys are text; say as source.key_format how they are written, or correct `origins`"
            raise BucketsError(message)
        if origin == KEY and source.key_format == "protobuf":
            message = f"{takes}, and a key in Protobuf is a message; name a field of it, as in {OF_KEY}{name}"
            raise BucketsError(message)


def group_checks(path: Path, settings: JobSettings, schema: EventSchema, rules: Sequence[Rule]) -> Iterator[Check]:
    """Return what is to be checked of settings for groups of rules of a file; each raises a BucketsError."""
    if settings.rules.path is not None:
        yield partial(check_precision_groups, f"configuration {path}", settings.engine, rules, schema)


def rule_checks(path: Path, settings: JobSettings, schema: EventSchema, rules: Sequence[Rule]) -> Iterator[Check]:
    """Return what is to be checked of rules of a file under the settings of a job; each raises a BucketsError."""
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
    output, audit = job.settings.output.folder, job.settings.audit
    return location(audit.path) if output is None and audit is not None else output


@of_configuration()
def check_source(path: Path, job: Job) -> None:
    """See that there is a source to read; what has been read is known without it.

    Raises:
        ConfigurationError: its folder or table does not exist.
    """
    source = job.settings.source
    place = location(source.path) if source.path else None
    if place is not None and not place.exists():
        remedy = "put a first file there" if isinstance(place, StorePath) else "create it"
        message = f"configuration {path}: source.path: {source.path} does not exist; {remedy} or correct the path"
        raise BucketsError(message)


def _check_format(path: Path, written_in: str) -> None:
    try:
        check_format(written_in)
    except BucketsError as error:
        message = f"configuration {path}: {error.message}"
        raise BucketsError(message) from None


def _check_avro(path: Path) -> None:
    from buckets.events.avro.avro_events import record_type

    try:
        record_type(WriterSchema(AVRO, read_text(path, AVRO_SCHEMA)))
    except SchemaError as error:
        message = f"{AVRO_SCHEMA} {path}: {error}; it must be the schema of a record"
        raise BucketsError(message) from None


def _check_protobuf(name: str | None, path: Path) -> None:
    from buckets.events.protobuf.proto_schema import message_named, read_schema

    text = protobuf_text(path)
    try:
        message_named(read_schema(WriterSchema(PROTOBUF, text)), name)
    except SchemaError as error:
        message = f"{PROTOBUF_SCHEMA} {path}: {error}; it must have the message that source.message names"
        raise BucketsError(message) from None


def _pinned(path: Path, message: str | None) -> PinnedProtobuf:
    return PinnedProtobuf(text=protobuf_text(path), message=message)


def protobuf_text(path: Path) -> str:
    """Return a schema file of Protobuf as descriptors in base64; a `.proto` file is compiled.

    Raises:
        BucketsError: it cannot be read, or not be compiled.
    """
    if path.suffix != ".proto":
        return base64.b64encode(read_content(path, PROTOBUF_SCHEMA)).decode()
    from buckets.events.protobuf.proto_schema import compiled_text

    try:
        return compiled_text(read_text(path, PROTOBUF_SCHEMA))
    except SchemaError as error:
        message = (
            f"{PROTOBUF_SCHEMA} {path}: {error}; correct it, or name a set of descriptors with all that it imports"
        )
        raise BucketsError(message) from None


def _check_no_pattern(path: Path, folder: Path) -> None:
    marks = [mark for mark in _PATTERN_MARKS if mark in str(folder)]
    if marks:
        message = (
            f"configuration {path}: source.path: {folder} holds {marks[0]}, so Spark would take it for a pattern of "
            "many paths; rename the folder"
        )
        raise BucketsError(message)


def _check_not_the_same(path: Path, written: Mapping[str, Path]) -> None:
    """See that nothing that a job writes lies in the very folder of something else."""
    for (name, folder), (other, there) in combinations(written.items(), 2):
        if folder.resolve() == there.resolve():
            message = f"configuration {path}: {name} and {other} are the same folder, {folder}; give each its own"
            raise BucketsError(message)


def _check_apart(path: Path, source: Path, name: str, folder: Path) -> None:
    """See that a job does not write into its own source; Spark does not look into hidden folders."""
    below, resolved = source.resolve(), folder.resolve()
    if below in resolved.parents and not any(map(is_hidden, resolved.relative_to(below).parts)):
        message = (
            f"configuration {path}: {name}: {folder} lies in source.path, where Spark would take its files for "
            "new ones of the source; move it elsewhere, with all that is in it"
        )
        raise BucketsError(message)


def check_precision_groups(origin: str, engine: EngineSettings, rules: Iterable[Rule], schema: EventSchema) -> None:
    """Check that each precision for a group is for a group of the rules, and the only one for it.

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


@of_configuration()
def load_engine_settings(path: Path) -> EngineSettings:
    """Read the `engine` part of a configuration; other parts are not looked at.

    Raises:
        ConfigurationError: the file cannot be read, or its engine part is not valid.
    """
    return load_model(path, _EngineOnly, "configuration").engine


@of_configuration()
def load_schema_and_engine(path: Path) -> tuple[EventSchema, EngineSettings]:
    """Read the event schema that a configuration names, and its `engine` part; other parts are not looked at.

    Raises:
        ConfigurationError: a file cannot be read or is not valid.
    """
    settings = load_model(path, _SchemaAndEngine, "configuration")
    return load_event_schema(_schema_path(path, settings.event_schema)), settings.engine


@of_configuration()
def load_registry_settings(path: Path) -> RegistrySettings:
    """Read how the schema registry of a configuration is reached; other parts are not looked at.

    Raises:
        ConfigurationError: the file cannot be read, or has no valid `kafka.registry`.
    """
    registry = load_model(path, _KafkaOnly, WHAT).kafka.registry
    if registry is None:
        message = (
            f"configuration {path}: kafka.registry is missing; add `registry: {{url: http://HOST:PORT}}` to `kafka`"
        )
        raise BucketsError(message)
    return registry


class _KafkaOnly(Settings):
    model_config = ConfigDict(extra="ignore")

    kafka: KafkaSettings


class _EngineOnly(Settings):
    model_config = ConfigDict(extra="ignore")

    engine: EngineSettings = EngineSettings()


class _SchemaAndEngine(_EngineOnly):
    event_schema: str = Field(alias="schema", min_length=1)

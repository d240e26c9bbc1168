"""A job: its configuration (`conf/*.yaml`) with the schema and rules that it names, checked against one another."""

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from buckets.config.engine import EngineSettings, precision_faults, raw_window_faults
from buckets.config.environment import Settings, from_environment
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.config.lists import list_faults
from buckets.config.settings import JobSettings
from buckets.config.source import CsvSource
from buckets.errors import BucketsError, ConfigurationError, Fault, Outage, as_errors, refuse
from buckets.events.decoded import AVRO, PROTOBUF, PinnedProtobuf, SchemaError, WriterSchema
from buckets.events.schema import KEY, OF_ENVELOPE, OF_KEY, ROW_IDS, EventSchema, load_event_schema
from buckets.events.source_files import is_hidden
from buckets.extras import check_format
from buckets.printable import counted
from buckets.rule_files.yaml_rules import read_rules
from buckets.rules.rule import Rule
from buckets.stores.location import location
from buckets.stores.store_path import StorePath
from buckets.yaml_file import load_mapping, load_model, read_content, read_model, read_text

_PATTERN_MARKS = "*?[]{}\\"
WHAT, RULES = "configuration", "rules"
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
        return location(self.settings.event_schema, self.path.resolve().parent)

    @property
    def protobuf_path(self) -> Path | None:
        """The file of the schema of values in Protobuf; None of all others."""
        source = self.settings.source
        is_one = source.schema_file is not None and source.format == "protobuf"
        return location(str(source.schema_file)) if is_one else None

    def with_schema_of_now(self) -> "Job":
        """Return the job with its event schema, and the schema of values in Protobuf, as the files have them now."""
        assert self.path is not None
        schema, protobuf, file = load_event_schema(self.schema_path), self.protobuf, self.protobuf_path
        refuse(schema_faults(self.path, self.settings, schema))
        if file is not None:
            refuse(_protobuf_faults(self.settings.source.message, file))
            protobuf = _pinned(file, self.settings.source.message)
        return self.model_copy(update={"event_schema": schema, "protobuf": protobuf})


@dataclass(frozen=True)
class Answer:
    """What was found of one thing."""

    thing: str  # what was looked at, as `topic transactions`
    where: str = ""  # its file, folder or table; empty for none
    note: str = ""  # what is there, where nothing is wrong
    faults: tuple[str, ...] = ()  # what is wrong with it, a line each


@contextlib.contextmanager
def of_configuration() -> Iterator[None]:
    """Raise what is wrong as a fault of a configuration, so that a command ends with its code; an Outage stays one."""
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
    job, found = _read_job(path)
    refuse(next((errors for _, _, _, errors in found if errors), ()))
    assert job is not None
    return job


def check_configuration(path: Path) -> tuple[Job | None, list[Answer]]:
    """Return the job of a configuration, None where something is wrong, and an answer for each of its files."""
    job, found = _read_job(path)
    answers = []
    for thing, file, note, errors in found:
        faults = tuple(dict.fromkeys(error.message for error in errors))
        answers.append(Answer(thing, str(file), "" if faults else note, faults))
    return job, answers


def _read_job(path: Path) -> tuple[Job | None, list[tuple[str, Path, str, list[BucketsError]]]]:
    """Return a job, None where something is wrong, and of each file what it is, what is there and what is wrong."""
    settings, faults = read_model(path, JobSettings, WHAT)
    try:
        settings = None if settings is None else with_absolute_paths(path, settings)
    except BucketsError as error:
        settings, faults = None, [error]
    faults += [] if settings is None else as_errors(settings_faults(path, settings))
    schema_path, rules_path = _named_files(path)
    found = [(WHAT, path, "valid", faults)]
    schema: EventSchema | None = None
    rules: tuple[Rule, ...] = ()
    if schema_path is not None:
        schema, errors = read_model(schema_path, EventSchema, "event schema")
        note = ""
        if schema is not None:
            derived = f", {len(schema.derive):,} of them derived" if schema.derive else ""
            note = f"{schema.name}, version {schema.version}: {len(schema.all_fields):,} fields{derived}"
            faults += [] if settings is None else as_errors(schema_faults(path, settings, schema))
        found.append(("event schema", schema_path, note, errors))
    if rules_path is not None:
        rules, errors = read_rules(rules_path, schema)
        if not errors and settings is not None and schema is not None:
            faults += as_errors(precision_faults(f"configuration {path}", rules, settings.engine, schema))
            errors += as_errors(rules_faults(path, settings, schema, rules))
        found.append(
            (RULES, rules_path, f"{counted(len(rules), 'rule')} {'is' if len(rules) == 1 else 'are'} valid", errors)
        )
    if settings is None or schema is None or any(errors for _, _, _, errors in found):
        return None, found
    return Job.of(path, settings, schema, rules), found


def _named_files(path: Path) -> tuple[Path | None, Path | None]:
    """Return the event schema and the rules that a configuration names, also one that is not valid; None for none."""
    try:
        data, _ = load_mapping(path, WHAT)
        rules = data.get("rules")
        names = data.get("schema"), rules.get("path") if isinstance(rules, dict) else rules
        schema_path, rules_path = (
            location(from_environment(name), path.resolve().parent) if isinstance(name, str) and name else None
            for name in names
        )
    except (BucketsError, ValueError):
        return None, None
    return schema_path, rules_path


def with_absolute_paths(path: Path, settings: JobSettings) -> JobSettings:
    """Make the paths in a configuration absolute but for those of schema and checkpoint."""
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
    try:
        return location(given, base)
    except BucketsError as error:
        message = f"{origin}: {error.message}"
        raise BucketsError(message) from None


def settings_faults(path: Path, settings: JobSettings) -> Iterator[Fault]:
    """Yield what is wrong with settings beyond their form."""
    origin, source, base = f"configuration {path}", settings.source, path.resolve().parent
    for written_in in dict.fromkeys((source.format, source.key_format, settings.output.format)):
        try:
            check_format(written_in)
        except BucketsError as error:
            yield f"{origin}: {error.message}"
    if source.schema_file is not None:
        file = location(source.schema_file)
        yield from _avro_faults(file) if source.format == "avro" else _protobuf_faults(source.message, file)
    given = {
        "checkpoint": location(settings.checkpoint, base),
        "output.path": settings.output.folder,
        "verdicts.table": settings.verdicts.table,
        "archive.path": None if settings.archive is None else settings.archive.path,
        "audit.path": None if settings.audit is None else settings.audit.path,
        "audit.checkpoint": None if settings.audit is None else settings.audit.checkpoint,
    }
    written = {name: location(str(folder)) for name, folder in given.items() if folder is not None}
    for (name, folder), (other, there) in combinations(written.items(), 2):
        if folder.resolve() == there.resolve():
            yield f"{origin}: {name} and {other} are the same folder, {folder}; give each its own"
    if source.folder is None:
        return
    marks = [mark for mark in _PATTERN_MARKS if mark in str(source.folder)]
    if marks:
        yield (
            f"{origin}: source.path: {source.folder} holds {marks[0]}, so Spark would take it for a pattern of many "
            "paths; rename the folder"
        )
    below = source.folder.resolve()
    for name, folder in written.items():
        resolved = folder.resolve()
        if below in resolved.parents and not any(map(is_hidden, resolved.relative_to(below).parts)):
            yield (
                f"{origin}: {name}: {folder} lies in source.path, where Spark would take its files for new ones of "
                "the source; move it elsewhere with its contents"
            )


def schema_faults(path: Path, settings: JobSettings, schema: EventSchema) -> Iterator[str]:
    """Yield what is wrong with an event schema under the settings of a job."""
    origin, source = f"configuration {path}", settings.source
    named = f"{origin}: event schema {schema.name!r}"
    if settings.serve.key is not None and settings.serve.key not in (*schema.attributes, *schema.measures):
        fields = ", ".join((*schema.attributes, *schema.measures))
        yield f"{named} has no field {settings.serve.key!r} for serve.key; name one of {fields}"
    if schema.identity.row and source.folder is None:
        yield f"{origin}: {source.place} has no rows that keep their number, and {ROW_IDS}"
    if isinstance(source, CsvSource) and not schema.csv.is_by_line:
        yield (
            f"{named} has csv.encoding {schema.csv.encoding}, in which a job does not see where lines end; let files "
            "be written as utf-8, or as cp1252 and the like"
        )
    if schema.records is not None and source.kind != "json":
        yield (
            f"{named} has `records: {json.dumps(schema.records)}`, which is for JSON files, and the source is of kind "
            f"{source.kind}; leave `records` out"
        )
    names: dict[str, str] = {}
    for name in [*schema.all_names, *schema.derive] if settings.archive is not None else ():
        other = names.setdefault(name.lower(), name)
        if other != name:
            yield (
                f"{named} has {other} and {name}, which differ only in upper and lower case, and the table of the "
                "archive cannot have both; give the field another name"
            )
    if not source.has_topics:
        for name, of_message in schema.beside_value.items():
            yield (
                f"{named} takes {name} from {of_message} of a message, and a source of kind {source.kind} has none; "
                "leave it out of `origins` or `event_time` there"
            )
        return
    for name, of_message in schema.origins.items():
        takes = f"{named} takes {name} from {of_message}"
        if of_message.startswith(OF_ENVELOPE) and source.envelope is None:
            yield f"{takes}, and the source has no envelope; name it as source.envelope, or correct `origins`"
        if of_message.startswith(OF_KEY) and source.key_format == "text":
            yield f"{takes}, and keys are text; say as source.key_format how they are written, or correct `origins`"
        if of_message == KEY and source.key_format == "protobuf":
            yield f"{takes}, and a key in Protobuf is a message; name a field of it, as in {OF_KEY}{name}"


def rules_faults(path: Path, settings: JobSettings, schema: EventSchema, rules: Sequence[Rule]) -> Iterator[str]:
    """Yield what is wrong with rules of a file under the settings of a job."""
    yield from raw_window_faults(f"configuration {path}", rules, settings.engine, schema)
    yield from list_faults(f"configuration {path}", rules, settings.lists)


def results_folder(job: Job) -> Path:
    """Return the folder of a job's tables of alerts: its output, or the tables of its audit; else refuse the job."""
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
    """Refuse a source that is not there; what has been read is known without it."""
    source = job.settings.source
    place = location(source.path) if source.path else None
    if place is not None and not place.exists():
        remedy = "put a first file there" if isinstance(place, StorePath) else "create it"
        message = f"configuration {path}: source.path: {source.path} does not exist; {remedy} or correct the path"
        raise BucketsError(message)


def _avro_faults(path: Path) -> Iterator[Fault]:
    from buckets.events.avro.avro_events import record_type

    try:
        record_type(WriterSchema(AVRO, read_text(path, AVRO_SCHEMA)))
    except SchemaError as error:
        yield f"{AVRO_SCHEMA} {path}: {error}; it must be the schema of a record"
    except BucketsError as error:
        yield error


def _protobuf_faults(name: str | None, path: Path) -> Iterator[Fault]:
    from buckets.events.protobuf.proto_schema import message_named, read_schema

    try:
        message_named(read_schema(WriterSchema(PROTOBUF, protobuf_text(path))), name)
    except SchemaError as error:
        yield f"{PROTOBUF_SCHEMA} {path}: {error}; it must have the message that source.message names"
    except BucketsError as error:
        yield error


def _pinned(path: Path, message: str | None) -> PinnedProtobuf:
    return PinnedProtobuf(text=protobuf_text(path), message=message)


def protobuf_text(path: Path) -> str:
    """Return a schema file of Protobuf as descriptors in base64; a `.proto` file is compiled."""
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


@of_configuration()
def load_engine_settings(path: Path) -> EngineSettings:
    """Read the `engine` part of a configuration; other parts are not looked at.

    Raises:
        ConfigurationError: the file cannot be read, or its engine part is not valid.
    """
    return load_model(path, _EngineOnly, "configuration").engine


@of_configuration()
def load_schema_and_engine(path: Path) -> tuple[EventSchema, EngineSettings]:
    """Read the event schema that a configuration names, and its `engine` part; other parts are not looked at."""
    settings = load_model(path, _SchemaAndEngine, "configuration")
    return load_event_schema(location(settings.event_schema, path.resolve().parent)), settings.engine


@of_configuration()
def load_registry_settings(path: Path) -> RegistrySettings:
    """Read how the schema registry of a configuration is reached; other parts are not looked at."""
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

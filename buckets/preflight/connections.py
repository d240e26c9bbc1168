"""Open each thing that a job connects to and check it, with short time-outs; nothing is written."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from buckets.archive.archive_writer import check_archive
from buckets.audit.folder import AuditFolder, topics_of
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.lock import check_free
from buckets.checkpoint.record_files import OwnedFolder
from buckets.checkpoint.writer_schemas import newest_protobuf
from buckets.config.job import Answer, Job, check_source
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.config.lists import ListSettings
from buckets.config.settings import ArchiveSettings, AuditSettings
from buckets.config.source import DeltaSource, FileSource, PartOfMessage, TopicSelection
from buckets.delta.commits import LOG
from buckets.delta.whole_table import check_table, open_named, query
from buckets.errors import BucketsError
from buckets.events.arrivals import MissingColumn, check_columns, parse, without_column
from buckets.events.bad_rows import BadRows
from buckets.events.debezium import fields_of_rows
from buckets.events.decoded import AVRO, PROTOBUF, SchemaError, WriterSchema
from buckets.events.event_file import EventFile, file_arrivals, lacking, open_event_file
from buckets.events.field_paths import array_path, reachable, type_of
from buckets.events.message_fields import TimesSeen
from buckets.events.messages import is_whole_key
from buckets.events.parquet_rows import can_order, plain_table_arrivals
from buckets.events.schema import KEY, OF_KEY
from buckets.events.source_files import readable_files
from buckets.feeds.rules.rule_book import RuleTable, open_rule_table
from buckets.feeds.schema_book import open_list
from buckets.kafka.faults import Broker
from buckets.kafka.registry import NO_SUBJECT, Registry, check_compatible
from buckets.kafka.topic_guard import TopicGuard
from buckets.kafka.topics import fields_in, topics_now, wanted_topics
from buckets.preflight.output_check import check_digits, check_output
from buckets.printable import counted
from buckets.rules.rule_set import first_rule_set
from buckets.stores.location import location
from buckets.stores.store_path import StorePath


def check_registry(job: Job, settings: RegistrySettings) -> str:
    """Check that the registry's schemas for values and keys contain the needed fields; describe the result."""
    source = job.settings.source
    registry, output = Registry(settings, pauses_s=()), job.settings.output
    if output.format != "json":
        check_compatible(registry, output, output.format)
    parts = [part for part in source.registered if fields_in(job, part)]
    if not parts:
        registry.newest(NO_SUBJECT)
        return "answers"
    return "; ".join(_subject(job, registry, topic, part) for topic in topics_now(job) for part in parts)


def _subject(job: Job, registry: Registry, topic: str, part: PartOfMessage) -> str:
    settings, source, subject = registry.settings, job.settings.source, f"{topic}-{part}"
    newest = registry.newest(subject)
    if newest is None:
        return f"answers; it has no subject {subject} yet"
    is_avro = source.registered[part] == "avro"
    if newest.schema.kind != (AVRO if is_avro else PROTOBUF):
        message = f"registry {settings.url}: version {newest.version:,} of {subject} is of type {newest.schema.kind}"
        raise BucketsError(message)
    try:
        names, reachable = (_avro_names if is_avro else _protobuf_names)(job, newest.schema, part)
        there = list(names)
        if part == "key":
            there = [f"{OF_KEY}{name}" for name in names]
        elif source.envelope == "debezium":
            there = _names_in_rows(newest.schema)
    except SchemaError as error:
        message = f"registry {settings.url}: version {newest.version:,} of {subject} {error}"
        raise BucketsError(message) from None
    if not there and source.envelope == "debezium":
        message = (
            f"registry {settings.url}: version {newest.version:,} of {subject} has no field `after`, in which Debezium "
            "has the row; leave out source.envelope, or let a connector write the topic"
        )
        raise BucketsError(message)
    own = {name for declared in fields_in(job, part).values() for name in declared}
    elsewhere = [name for name in job.event_schema.field_names if name not in own]
    there = list(dict.fromkeys([*reachable, *elsewhere, *there]))
    check_columns(there, job.event_schema, f"of subject {subject}")
    gone = without_column(there, job.event_schema, first_rule_set(job.rules).named_fields)
    found = f"{subject} is at version {newest.version:,}, schema {newest.number:,}: {counted(len(names), 'field')}"
    return f"{found}; {gone}" if gone else found


def _avro_names(job: Job, schema: WriterSchema, part: PartOfMessage) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of a schema, and the declared ones found in it, including inside an envelope."""
    from buckets.events.avro.avro_events import NO_VALUES, leaves, record_type

    wanted = fields_in(job, part)
    field = KEY if part == "key" and is_whole_key(job.event_schema) else None
    root = record_type(schema, field)
    kinds = {at: leaves(root, at) for at in wanted}
    for at, (name, *_) in wanted.items():
        faults = [NO_VALUES.get(leaf.kind) for leaf in kinds[at]]
        if array_path(at) is None and faults and all(faults):
            message = f"has {name}, which {faults[0]}; take it out of the event schema"
            raise SchemaError(message)
    records = root.records if field is None else ()
    names = dict.fromkeys(name for record in records for each in record.fields for name in (each.name, *each.aliases))
    return list(names), [name for at, found in kinds.items() if found for name in wanted[at]]


def _protobuf_names(job: Job, schema: WriterSchema, part: PartOfMessage) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of the schema's best matching message, and the declared ones in it, by name or number."""
    from buckets.events.protobuf.proto_schema import messages_of, read_schema
    from buckets.events.protobuf.wanted import wanted_fields

    wanted, pinned = fields_in(job, part), newest_protobuf(job)
    found = []
    for message in messages_of(read_schema(schema)):
        fields = wanted_fields(message, list(wanted), pinned.numbers.get(message.full_name, {}))
        found.append((message, {at: field for at, field in fields.items() if field.way or field.fault}))
    if not found:
        fault = "has no message"
        raise SchemaError(fault)
    best, fields = max(found, key=lambda each: len(each[1]))
    for at, field in fields.items():
        if field.fault:
            fault = f"has {wanted[at][0]}, which {field.fault}; take it out of the event schema"
            raise SchemaError(fault)
    names = [field.name for field in best.fields]
    return names, [name for at in fields for name in wanted[at]]


def _names_in_rows(schema: WriterSchema) -> list[str]:
    """Return the columns of the database rows in a change-event schema; empty for other schemas."""
    if schema.kind == AVRO:
        from buckets.events.avro.avro_events import imported_fields as avro_fields
        from buckets.events.avro.avro_type import read_schema as read_avro

        records = read_avro(schema.text, schema.references).records
        fields = [field for record in records for field in avro_fields(record, "")]
    else:
        from buckets.events.protobuf.proto_schema import messages_of, read_schema
        from buckets.events.protobuf.wanted import imported_fields as protobuf_fields

        file = read_schema(schema)
        names = [message.full_name for message in messages_of(file)]
        fields = [field for name in names for field in protobuf_fields(file, name, ("", ""))]
    return [field.name for field in fields_of_rows(fields)]


_ROWS_LOOKED_AT = 1000  # The rows of a source whose times are checked
ANSWER_WITHIN_S = 5.0  # How long brokers may take to answer
_FILES_LOOKED_AT = 5


_Look = tuple[str, str, Callable[[], str]]  # A thing, its place, and its check


def check_connections(path: Path, job: Job, on_thing: Callable[[str], None] = lambda thing: None) -> Iterator[Answer]:
    """Check everything that a valid configuration names; topics only if a broker has answered."""
    for thing, where, look in _looks(path, job):
        on_thing(thing)
        try:
            yield Answer(thing, where, look())
        except BucketsError as error:
            yield Answer(thing, where, faults=(error.message,))
        except OSError as error:
            yield Answer(thing, where, faults=(f"{where}: cannot be read ({error.strerror}); see who may",))


def _looks(path: Path, job: Job) -> Iterator[_Look]:
    """Yield the things to check, each once the previous one has been checked."""
    settings = job.settings
    match settings.source:
        case FileSource() as source:
            yield "source", source.path, partial(_source_files, path, job, source)
        case DeltaSource() as source:
            yield "source", source.path, partial(_source_table, path, job, source)
    if settings.rules.table is not None:
        yield "rules", settings.rules.table, partial(_rule_table, job, location(settings.rules.table))
    for name, settings_of_list in settings.lists.items():
        if settings_of_list.path:
            yield f"list {name}", settings_of_list.path, partial(_list, job, settings_of_list)
    yield "checkpoint", str(job.checkpoint), partial(_checkpoint, job)
    if settings.output.folder is not None:
        yield "output", settings.output.path, partial(_output, job, settings.output.folder)
    if settings.archive is not None:
        yield "archive", settings.archive.path, partial(_archive, job, settings.archive)
    if settings.audit is not None:
        yield "audit", settings.audit.path, partial(_audit, job, settings.audit)
    if settings.kafka is not None:
        yield from _kafka(job, settings.kafka)
        if settings.kafka.registry is not None:
            yield "registry", settings.kafka.registry.url, partial(check_registry, job, settings.kafka.registry)


def _source_files(path: Path, job: Job, source: FileSource) -> str:
    check_source(path, job)
    folder = source.folder
    if not isinstance(folder, StorePath) and not os.access(folder, os.R_OK | (os.X_OK if folder.is_dir() else 0)):
        message = f"source.path: {folder} may not be read; see who may"
        raise BucketsError(message)
    files = sorted(readable_files(folder, source.subfolders))
    begun = next((file for file in files if file.stat().st_size), None)
    if begun is None:
        return counted(len(files), "file") if files else "no files yet"
    gone = _lacking(files, job, source)
    arrivals = file_arrivals(EventFile(begun, source.file_format), job.event_schema, _ROWS_LOOKED_AT)
    try:
        told = _looked_at(next(arrivals, None), job, f"events {begun}")
    except BucketsError:
        open_event_file(begun, job.event_schema, source.file_format)  # Explains the file's layout, if that is why.
        raise
    return "; ".join([counted(len(files), "file"), *gone, *told])


def _lacking(files: list[Path], job: Job, source: FileSource) -> list[str]:
    """Describe which fields that rules need are in none of some files."""
    opened, faults = list[EventFile](), list[MissingColumn]()
    for file in files[:_FILES_LOOKED_AT]:
        try:
            opened.append(open_event_file(file, job.event_schema, source.file_format))
        except MissingColumn as error:
            faults.append(error)
        except BucketsError:
            continue  # A job turns unreadable rows into dead letters.
    if faults and not opened:
        raise faults[0]
    gone = lacking(opened, job.event_schema, first_rule_set(job.rules).named_fields) if opened else ""
    return [gone] if gone else []


def _looked_at(rows: pa.RecordBatch | None, job: Job, origin: str) -> list[str]:
    """Check the first rows of a source, and return remarks about their times."""
    if rows is None:
        return []
    rows = rows.slice(0, _ROWS_LOOKED_AT)
    seen = TimesSeen(job.event_schema, origin)
    seen.take(rows)
    _, dead = parse(rows, job.event_schema, frozenset())
    bad = BadRows()
    bad.take(len(rows), len(dead), ((letter.source, letter.position, letter.reason) for letter in dead))
    bad.check(origin)
    return seen.lines


def _source_table(path: Path, job: Job, source: DeltaSource) -> str:
    check_source(path, job)
    remedy = "correct the path or source.kind"
    table = open_named(source.path, lambda why: f"source.path: {source.path} is not a Delta table ({why}); {remedy}")
    columns = pa.schema(table.schema().to_arrow())
    assert source.arrival is not None
    there = reachable(job.event_schema.all_names, columns)
    check_columns(there, job.event_schema, source.path, source.arrival)
    kind = type_of(source.arrival, columns)
    if kind is None or not can_order(kind):
        message = (
            f"source.arrival: column {source.arrival!r} of {source.path} is of type {kind} and cannot order rows; name "
            "a column of whole numbers, dates or timestamps"
        )
        raise BucketsError(message)
    first = query(table, f"select * from rows limit {_ROWS_LOOKED_AT}", f"source.path: {source.path}")
    rows = next(plain_table_arrivals(first, job.event_schema), None)
    found = f"version {table.version():,}, {len(columns):,} columns"
    return "; ".join([found, *_looked_at(rows, job, f"events {source.path}")])


def _rule_table(job: Job, path: Path) -> str:
    RuleTable(path, job.event_schema).start(None)
    return f"version {open_rule_table(path).version():,}"


def _list(job: Job, settings: ListSettings) -> str:
    open_list(job, settings).start(None)
    return "can be read"


def _checkpoint(job: Job) -> str:
    _check_writable("checkpoint", job.checkpoint)
    check_free(job.checkpoint)
    basis, checkpoint = CheckpointIdentity.of(job), Checkpoint(job.checkpoint)
    if checkpoint.job.identity(basis) is None:
        return "begins anew"
    checkpoint.check()
    changed = checkpoint.job.carried_over(basis)
    return f"goes on; {changed}" if changed else "goes on"


def _output(job: Job, path: Path) -> str:
    checkpoint = Checkpoint(job.checkpoint)
    folder = OwnedFolder(path, "output.path", checkpoint.job.life)
    check_output(folder, checkpoint, checkpoint.job.known_identity())
    check_digits(path, job.event_schema)
    _check_tables(path)
    _check_writable("output.path", path)
    return "goes on" if folder.owner.exists() else "begins anew"


def _archive(job: Job, settings: ArchiveSettings) -> str:
    path, by = location(settings.path), settings.cluster_by
    if by is not None and by not in job.event_schema.all_fields:
        there = ", ".join(job.event_schema.all_fields)
        message = f"archive.cluster_by: the event schema has no field {by!r}; fields: {there}"
        raise BucketsError(message)
    if by is not None and by in job.event_schema.arrays:
        message = f"archive.cluster_by: {by} is an array, and rows are sorted by one value; name another field"
        raise BucketsError(message)
    checkpoint = Checkpoint(job.checkpoint)
    folder = OwnedFolder(path, "archive.path", checkpoint.job.life)
    is_there = check_archive(folder, checkpoint, checkpoint.job.known_identity())
    _check_writable("archive.path", path)
    return "goes on" if is_there else "begins anew"


def _audit(job: Job, settings: AuditSettings) -> str:
    folder = AuditFolder(settings)
    folder.check()
    folder.topics(topics_of(job))
    _check_tables(folder.tables)
    _check_writable("audit.path", folder.tables)
    _check_writable("audit.checkpoint", folder.checkpoint)
    return "goes on" if folder.tables.exists() else "begins anew"


def _check_tables(folder: Path) -> None:
    for log in sorted(folder.glob(f"*/{LOG}")):
        check_table(log.parent)


def _check_writable(setting: str, path: Path) -> None:
    """Check that a folder, or its first existing parent, is writable; for a store that it answers."""
    if isinstance(path, StorePath):
        path.exists()
        return
    there = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        message = f"{setting}: {path}: {there} is a file; name a folder"
        raise BucketsError(message)
    if not os.access(there, os.W_OK | os.X_OK):
        message = f"{setting}: {path}: {there} may not be written to; see who may, or name another folder"
        raise BucketsError(message)


def _kafka(job: Job, kafka: KafkaSettings) -> Iterator[_Look]:
    """Yield the brokers, and each topic if they answer."""
    there: dict[str, int] | None = None

    def reach() -> str:
        nonlocal there
        there = Broker(kafka).partitions(ANSWER_WITHIN_S)
        return "answers"

    yield "kafka", kafka.bootstrap_servers, reach
    if there is None:
        return
    source, audit = job.settings.source, job.settings.audit
    changes = [job.settings.rules.topic, *(settings.topic for settings in job.settings.lists.values())]
    for topic in dict.fromkeys(wanted.topic for wanted in wanted_topics(job, 1)):
        readers = [job.checkpoint] if topic in source.all_topics else []
        readers += [location(audit.checkpoint)] if audit is not None and topic in topics_of(job) else []
        guards = [TopicGuard(kafka, checkpoint, TopicSelection((topic,))) for checkpoint in readers]
        yield f"topic {topic}", kafka.bootstrap_servers, partial(_topic, topic, there, topic in changes, guards)
    if source.topic_pattern is not None:
        look = partial(_topics_found, job, kafka)
        yield f"topics like {source.topic_pattern}", kafka.bootstrap_servers, look


def _topics_found(job: Job, kafka: KafkaSettings) -> str:
    """Check that the source's pattern matches topics, and that all that it found before still exist."""
    guard = TopicGuard(kafka, job.checkpoint, TopicSelection(pattern=job.settings.source.topic_pattern))
    found = guard.find()
    guard.check()
    return f"{counted(len(found), 'topic')}: {', '.join(found)}"


def _topic(topic: str, there: dict[str, int], is_ordered: bool, guards: Iterable[TopicGuard]) -> str:
    if topic not in there:
        message = f"there is no topic {topic}; `buckets kafka topics CONF` creates the topics of a configuration"
        raise BucketsError(message)
    partitions = there[topic]
    if is_ordered and partitions != 1:
        message = (
            f"topic {topic} has {partitions} partitions, and its changes need one order; name one of one partition"
        )
        raise BucketsError(message)
    for guard in guards:
        guard.check()
    return counted(partitions, "partition")

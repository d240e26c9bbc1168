"""What a job connects to: each thing is opened and looked at, with short time-outs; nothing is written."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from buckets.audit.folder import AuditFolder, check_isolation, topics_of
from buckets.checkpoint.basis import Basis
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.lock import check_free
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.job import Job, check_source
from buckets.config.kafka import KafkaSettings
from buckets.config.lists import ListSettings
from buckets.config.source import DeltaSource, FileSource, TopicSelection
from buckets.delta.commits import LOG
from buckets.delta.whole_table import check_table, open_named, query
from buckets.errors import BucketsError
from buckets.events.arrivals import MissingColumn, check_columns, parse
from buckets.events.bad_rows import BadRows
from buckets.events.event_file import EventFile, file_arrivals, lacking, open_event_file
from buckets.events.field_paths import reachable, type_of
from buckets.events.message_fields import TimesSeen
from buckets.events.parquet_rows import can_order, plain_table_arrivals
from buckets.events.source_files import readable_files
from buckets.feeds.rules.rule_book import RuleTable, open_rule_table
from buckets.feeds.schema_book import open_list
from buckets.kafka.faults import Broker
from buckets.kafka.topic_guard import TopicGuard
from buckets.kafka.topics import wanted_topics
from buckets.preflight.configuration import Answer, ask
from buckets.preflight.output_check import check_digits, check_output
from buckets.printable import counted
from buckets.rules.rule_set import first_rule_set
from buckets.stores.location import location
from buckets.stores.store_path import StorePath

_ROWS_LOOKED_AT = 1000  # Rows of a source of which times are looked at
ANSWER_WITHIN_S = 5.0  # How long brokers may take to answer
_FILES_LOOKED_AT = 5


def check_connections(path: Path, job: Job, on_thing: Callable[[str], None] = lambda thing: None) -> Iterator[Answer]:
    """Look at all that a valid configuration names.

    Args:
        path: the configuration.
        job: what it says.
        on_thing: called with each thing before it is looked at.
    """
    for thing, where, look in _looks(path, job):
        on_thing(thing)
        yield ask(thing, where, look)
    if job.settings.kafka is not None:
        yield from _kafka(job, on_thing)
        if job.settings.kafka.registry is not None:
            from buckets.preflight.registry_check import check_registry

            on_thing("registry")
            yield ask(
                "registry", job.settings.kafka.registry.url, partial(check_registry, job, job.settings.kafka.registry)
            )


def _looks(path: Path, job: Job) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Return the things that are no topics, and what looks at each."""
    settings = job.settings
    match settings.source:
        case FileSource() as source:
            yield "source", source.path, partial(_source_files, path, job, source)
        case DeltaSource() as source:
            yield "source", source.path, partial(_source_table, path, job, source)
    if settings.rules.table is not None:
        yield "rules", str(settings.rules.table), partial(_rule_table, job)
    for name, settings_of_list in settings.lists.items():
        if settings_of_list.path:
            yield f"list {name}", settings_of_list.path, partial(_list, job, settings_of_list)
    yield "checkpoint", str(job.checkpoint), partial(_checkpoint, job)
    if settings.output.folder is not None:
        yield "output", settings.output.path, partial(_output, job, settings.output.folder)
    if settings.archive is not None:
        yield "archive", str(settings.archive.path), partial(_archive, job, location(settings.archive.path))
    if settings.audit is not None:
        yield "audit", str(settings.audit.path), partial(_audit, job)


def _source_files(path: Path, job: Job, source: FileSource) -> str:
    check_source(path, job)
    folder = source.folder
    in_store = isinstance(folder, StorePath)
    if not in_store and not os.access(folder, os.R_OK | (os.X_OK if folder.is_dir() else 0)):
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
        open_event_file(begun, job.event_schema, source.file_format)  # Says how a file is laid out, if that is why.
        raise
    return "; ".join([counted(len(files), "file"), *gone, *told])


def _lacking(files: list[Path], job: Job, source: FileSource) -> list[str]:
    """Say which fields that rules need none of some files has.

    Raises:
        MissingColumn: none of them has id and time.
    """
    opened, faults = list[EventFile](), list[MissingColumn]()
    for file in files[:_FILES_LOOKED_AT]:
        # A job makes dead letters of what cannot be read.
        with contextlib.suppress(BucketsError):
            try:
                opened.append(open_event_file(file, job.event_schema, source.file_format))
            except MissingColumn as error:
                faults.append(error)
    if faults and not opened:
        raise faults[0]
    gone = lacking(opened, job.event_schema, first_rule_set(job.rules).named_fields) if opened else ""
    return [gone] if gone else []


def _looked_at(rows: pa.RecordBatch | None, job: Job, origin: str) -> list[str]:
    """Look at the first rows of a source, and return what is told of their times.

    Raises:
        BucketsError: less than half of them can be read, or their times are in another unit than the declared.
    """
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
    table = open_named(source.path, lambda why: f"source.path: {source.path} is no Delta table ({why}); {remedy}")
    columns = pa.schema(table.schema().to_arrow())
    assert source.arrival is not None
    there = reachable(job.event_schema.field_names, columns)
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


def _rule_table(job: Job) -> str:
    assert job.settings.rules.table is not None
    path = location(str(job.settings.rules.table))
    RuleTable(path, job.event_schema).start(None)
    return f"version {open_rule_table(path).version():,}"


def _list(job: Job, settings: ListSettings) -> str:
    open_list(job, settings).start(None)
    return "can be read"


def _checkpoint(job: Job) -> str:
    _check_writable("checkpoint", job.checkpoint)
    check_free(job.checkpoint)
    basis, checkpoint = Basis.of(job), Checkpoint(job.checkpoint)
    if checkpoint.job.identity(basis) is None:
        return "begins anew"
    checkpoint.check()
    changed = checkpoint.job.carried_over(basis)
    return f"goes on; {changed}" if changed else "goes on"


def _identity(job: Job) -> str | None:
    return Checkpoint(job.checkpoint).job.known_identity()


def _output(job: Job, path: Path) -> str:
    checkpoint = Checkpoint(job.checkpoint)
    folder = OwnedFolder(path, "output.path", checkpoint.job.life)
    check_output(folder, checkpoint, _identity(job))
    check_digits(path, job.event_schema)
    _check_tables(path)
    _check_writable("output.path", path)
    return "goes on" if folder.owner.exists() else "begins anew"


def _archive(job: Job, path: Path) -> str:
    assert job.settings.archive is not None
    if job.settings.source.has_topics and job.settings.audit is None:
        message = (
            "archive: what has arrived in topics is archived from what `buckets audit` keeps, and there is no `audit`; "
            "add `audit: {path: audit, checkpoint: audit-checkpoint}` and start the job with `--audit`, or leave "
            "`archive` out"
        )
        raise BucketsError(message)
    by = job.settings.archive.cluster_by
    if by is not None and by not in job.event_schema.field_names:
        there = ", ".join(job.event_schema.field_names)
        message = f"archive.cluster_by: the event schema has no field {by!r}; fields: {there}"
        raise BucketsError(message)
    if by is not None and by in job.event_schema.arrays:
        message = f"archive.cluster_by: {by} is an array, and rows are sorted by one value; name another field"
        raise BucketsError(message)
    is_there = OwnedFolder(path, "archive.path").is_of(_identity(job))
    _check_writable("archive.path", path)
    return "goes on" if is_there else "begins anew"


def _audit(job: Job) -> str:
    settings = job.settings.audit
    assert settings is not None
    check_isolation(job)
    folder = AuditFolder(settings)
    folder.check()
    folder.topics(topics_of(job))
    _check_tables(folder.tables)
    _check_writable("audit.path", folder.tables)
    _check_writable("audit.checkpoint", folder.checkpoint)
    return "goes on" if folder.tables.exists() else "begins anew"


def _check_tables(folder: Path) -> None:
    """See that the tables in a folder are whole."""
    for log in sorted(folder.glob(f"*/{LOG}")):
        check_table(log.parent)


def _check_writable(setting: str, path: Path) -> None:
    """See that a folder, or the first one above it that is there, may be written to; of a store that it answers."""
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


def _kafka(job: Job, on_thing: Callable[[str], None]) -> Iterator[Answer]:
    """Ask the brokers, and look for each topic."""
    kafka = job.settings.kafka
    assert kafka is not None
    there: dict[str, int] = {}

    def reach() -> str:
        there.update(Broker(kafka).partitions(ANSWER_WITHIN_S))
        return "answers"

    on_thing("kafka")
    answer = ask("kafka", kafka.bootstrap_servers, reach)
    yield answer
    if answer.is_ok:
        ordered = _ordered_topics(job)
        for topic in dict.fromkeys(wanted.topic for wanted in wanted_topics(job, 1)):
            look = partial(_topic, topic, there, topic in ordered, _guards(job, kafka, topic))
            yield ask(f"topic {topic}", kafka.bootstrap_servers, look)
        pattern = job.settings.source.topic_pattern
        if pattern is not None:
            yield ask(f"topics like {pattern}", kafka.bootstrap_servers, partial(_topics_found, job, kafka))


def _guards(job: Job, kafka: KafkaSettings, topic: str) -> list[TopicGuard]:
    """Return what knows whether a topic is still the one that was read."""
    readers = [job.checkpoint] if topic in job.settings.source.all_topics else []
    if job.settings.audit is not None and topic in topics_of(job):
        readers.append(location(job.settings.audit.checkpoint))
    return [TopicGuard(kafka, checkpoint, TopicSelection((topic,))) for checkpoint in readers]


def _topics_found(job: Job, kafka: KafkaSettings) -> str:
    """See that the source's pattern matches topics, and that all that it has found before are there."""
    guard = TopicGuard(kafka, job.checkpoint, TopicSelection(pattern=job.settings.source.topic_pattern))
    found = guard.find()
    guard.check()
    return f"{counted(len(found), 'topic')}: {', '.join(found)}"


def _ordered_topics(job: Job) -> frozenset[str]:
    """Return the topics whose messages need one order."""
    lists = [settings.topic for settings in job.settings.lists.values() if settings.topic is not None]
    return frozenset([*lists, *([] if job.settings.rules.topic is None else [job.settings.rules.topic])])


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

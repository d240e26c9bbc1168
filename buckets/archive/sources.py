"""Reads again what a job has read: the arrivals of each batch, from files, a Delta table or the audit of a topic."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.delta_source import delta_arrivals
from buckets.audit.folder import AuditFolder, audit_settings
from buckets.audit.tables import TOPIC_ID, TRANSACTIONS
from buckets.audit.writer import kept_messages
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.record_files import UnreadFiles
from buckets.checkpoint.source_offsets import SourceOffsets, TopicOffsets, spark_folder
from buckets.checkpoint.topic_generations import Offsets, TopicGeneration, TopicGenerations, generation_name
from buckets.checkpoint.writer_schemas import RegisteredSchemas, pinned_schemas
from buckets.config.job import Job
from buckets.config.source import DeltaSource, FileSource, KafkaSource
from buckets.delta.whole_table import open_table, sql_text
from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.json_records import record_arrivals
from buckets.events.message_fields import as_declared, columns_beside_value, schema_to_read
from buckets.events.messages import TopicMessages
from buckets.events.parquet_rows import MOST_ROWS, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import is_hidden, line_reader, modified_ms, open_text
from buckets.monitor.words import TakenFiles
from buckets.stores.location import found_location

_MOST_MESSAGES = 1_000_000  # Messages that are read at once, about


Arrived = Iterator[tuple[int, pa.RecordBatch]]
"""Batches by their number, each in one or more pieces, in the order of arrival."""


class BatchRange(NamedTuple):
    """The batches that are wanted: their cuts, and how far the source had been read before them, None for nothing."""

    before: BatchEnd | None
    cuts: Sequence[BatchEnd]


def source_arrivals(job: Job, wanted: BatchRange, schemas: Mapping[int, EventSchema]) -> Arrived:
    """Read the arrivals of batches once more, as far as an audit has come."""
    match job.settings.source:
        case KafkaSource():
            return _topic_arrivals(job, wanted, schemas)
        case DeltaSource() as source:
            return delta_arrivals(source, wanted.cuts, schemas)
        case FileSource() as source:
            return _file_arrivals(job, source, wanted, schemas)
        case source:
            raise NotImplementedError(source.kind)


def lost_batches(job: Job, wanted: BatchRange, terms_of: Callable[[int], Terms]) -> Sequence[int]:
    """Return the batches that can never be archived, because they have read messages that the audit will never have.

    They were gone before it came, or were read under another isolation, so that what it has is not what was scored.
    """
    if not isinstance(job.settings.source, KafkaSource):
        return ()
    assert job.settings.kafka is not None
    same = (None, job.settings.kafka.isolation)
    lost = {cut.batch_id for cut in wanted.cuts if terms_of(cut.batch_id).isolation not in same}
    for topic in _topics(job, wanted):
        reads = zip(wanted.cuts, topic.reads, strict=True)
        lost.update(cut.batch_id for cut, read in reads if topic.kept[read.number - 1].has_lost(read))
    return sorted(lost)


class _Read(NamedTuple):
    """What a batch has read of a topic: which generation, from 1, and by partition from where and to before where."""

    number: int
    begin: Offsets
    end: Offsets


class _Kept(NamedTuple):
    """What the audit has of a generation of a topic, by partition; of one that `is_over` nothing will come any more."""

    begin: Offsets
    end: Offsets
    is_over: bool = False

    def has(self, read: _Read) -> bool:
        """Return whether it has what a batch has read, as far as it has come."""
        return all(offset <= self.end.get(partition, 0) for partition, offset in read.end.items())

    def has_lost(self, read: _Read) -> bool:
        """Return whether a batch has read what it will never have."""
        for partition, end in read.end.items():
            begin = read.begin.get(partition, 0)
            is_before = begin < self.begin.get(partition, 0)
            if begin < end and (is_before or (self.is_over and end > self.end.get(partition, 0))):
                return True
        return False


class _Topic(NamedTuple):
    """A topic of a job: its name, the generations that the job has read, what the audit has of each, and its reads."""

    name: str
    generations: Sequence[TopicGeneration]
    kept: Sequence[_Kept]
    reads: Sequence[_Read]  # what each batch that is asked for has read; nothing before the first generation


def _topics(job: Job, wanted: BatchRange) -> list[_Topic]:
    """Return the topics that a job has read, and what its audit has of them."""
    folder = AuditFolder(audit_settings(job))
    audited = SourceOffsets(folder.checkpoint)
    if audited.ended is None:
        message = f"audit {folder.tables} holds nothing yet; run `buckets audit CONF --once` first"
        raise BucketsError(message)
    first, now = audited.before(0), audited.end(audited.ended)
    known, own = TopicGenerations(folder.checkpoint).by_topic, TopicGenerations(job.checkpoint).by_topic
    begin = SourceOffsets(job.checkpoint).before(0) if wanted.before is None else json.loads(wanted.before.end)
    topics = []
    for name in job.settings.source.selection.of(own):
        generations = own.get(name) or (TopicGeneration(""),)
        kept = _kept(generations, known.get(name, ()), _Kept(_offsets(first, name), _offsets(now, name)))
        last, reads = _offsets(begin, name), []
        for cut in wanted.cuts:
            number = 1 + sum(generation.first_batch <= cut.batch_id for generation in generations[1:])
            if number > 1 and cut.batch_id == generations[number - 1].first_batch:
                last = generations[number - 1].begin
            reads.append(_Read(number, last, _offsets(json.loads(cut.end), name)))
            last = reads[-1].end
        topics.append(_Topic(name, generations, kept, reads))
    return topics


def _kept(generations: Sequence[TopicGeneration], known: Sequence[TopicGeneration], of_topic: _Kept) -> list[_Kept]:
    """Return what an audit has of each generation of a topic that the job has read.

    `known` are those that the audit has read; `of_topic` is from where its first batch has read the topic, and how far
    its last one.
    """
    kept = {
        each.topic_id: _Kept(
            each.begin if number else of_topic.begin,
            of_topic.end if each.end is None else each.end,
            is_over=each.end is not None,
        )
        for number, each in enumerate(known)
    }
    if not kept:
        return [of_topic] * len(generations)
    newest = max((number for number, each in enumerate(generations) if each.topic_id in kept), default=-1)
    # One that it does not know is still to come, unless it has read a later one.
    return [
        kept.get(each.topic_id, _Kept({}, {}, is_over=number < newest)) if each.topic_id else of_topic
        for number, each in enumerate(generations)
    ]


def _offsets(written: TopicOffsets, topic: str) -> Offsets:
    return {int(partition): offset for partition, offset in written.get(topic, {}).items()}


def _topic_arrivals(job: Job, wanted: BatchRange, schemas: Mapping[int, EventSchema]) -> Arrived:
    """Yield the messages of batches, by partition, topic and offset; only of batches that the audit has reached."""
    source = job.settings.source
    beside = frozenset(name for schema in schemas.values() for name in columns_beside_value(schema, source.envelope))
    reader, pinned_of = TopicMessages(source, RegisteredSchemas(job.checkpoint)), pinned_schemas(job)
    table = AuditFolder(audit_settings(job)).tables / TRANSACTIONS
    of_topics = [_of_topic(table, topic, beside) for topic in _topics(job, wanted)]
    # A topic that the audit has not read as far ends all of them.
    for cut, *tables in zip(wanted.cuts, *of_topics, strict=False):
        (rows,) = tables if len(tables) == 1 else [_in_order(pa.concat_tables(tables))]
        for piece in rows.to_batches(max_chunksize=MOST_ROWS):
            yield cut.batch_id, reader.read(piece, schemas[cut.batch_id], cut.batch_id, pinned_of(cut.batch_id))


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in (SOURCE_ORDER, SOURCE, POSITION)]).combine_chunks()


def _of_topic(table: Path, topic: _Topic, beside: frozenset[str]) -> Iterator[pa.Table]:
    """Yield the messages of a topic in each batch, as arrivals before their values are read."""
    there = takewhile(lambda read: topic.kept[read.number - 1].has(read), topic.reads)
    for number, of_generation in groupby(there, key=lambda read: read.number):
        name, topic_id = generation_name(topic.name, number), topic.generations[number - 1].topic_id
        for group in _groups(of_generation):
            opened, last = open_table(table), group[0].begin
            ranges = [
                f'"partition" = {partition} and "offset" >= {last.get(partition, 0)} and "offset" < {offset}'
                for partition, offset in group[-1].end.items()
            ]
            where = f"topic = {sql_text(topic.name)} and (({') or ('.join(ranges or ['false'])}))"
            if topic_id and any(field.name == TOPIC_ID for field in opened.schema().fields):
                unknown = f"{TOPIC_ID} is null or " if number == 1 else ""
                where += f" and ({unknown}{TOPIC_ID} = '{topic_id}')"
            messages = kept_messages(opened, table, where, beside)
            partitions = messages[SOURCE_ORDER].cast(pa.string())
            sources = pc.binary_join_element_wise(f"{name}[", partitions, "]", "").cast(pa.string())
            messages = messages.append_column(SOURCE, sources).combine_chunks()
            for read in group:
                yield _between(messages, read.begin, read.end)


def _groups(reads: Iterable[_Read]) -> Iterator[list[_Read]]:
    """Split what batches that follow each other have read into about a million messages each."""
    group: list[_Read] = []
    for read in reads:
        group.append(read)
        if sum(read.end.values()) - sum(group[0].begin.values()) >= _MOST_MESSAGES:
            yield group
            group = []
    if group:
        yield group


def _between(messages: pa.Table, last: Offsets, end: Offsets) -> pa.Table:
    """Return the messages of one batch."""
    inside = pa.array([False] * len(messages), pa.bool_())
    for partition, offset in end.items():
        of_it = pc.and_(
            pc.equal(messages[SOURCE_ORDER], partition),
            pc.and_(pc.greater_equal(messages[POSITION], last.get(partition, 0)), pc.less(messages[POSITION], offset)),
        )
        inside = pc.or_(inside, of_it)
    return messages.filter(inside).combine_chunks()


def _file_arrivals(job: Job, source: FileSource, wanted: BatchRange, schemas: Mapping[int, EventSchema]) -> Arrived:
    taken = TakenFiles(spark_folder(job.checkpoint))
    taken.read()
    unread = UnreadFiles(job.checkpoint).read()
    files = sorted((file.batch, file.modified_ms, path) for path, file in taken.files.items())

    def is_read(path: Path) -> bool:
        """Return whether a file that Spark lists as taken has been read."""
        if path == source.folder:
            return True
        folders = path.relative_to(source.folder).parts[:-1] if path.is_relative_to(source.folder) else ()
        return not folders or (source.subfolders and not any(map(is_hidden, folders)))

    read = -1 if wanted.before is None else _log_offset(wanted.before)
    for cut in wanted.cuts:
        until, schema = _log_offset(cut), schemas[cut.batch_id]
        of_batch = sorted(
            (at_ms, path)
            for number, at_ms, path in files
            if read < number <= until and unread.get(path) != number and is_read(found_location(path))
        )
        read = until
        pieces = (rows for at_ms, path in of_batch for rows in _rows(found_location(path), at_ms, source, schema))
        if source.arrival is not None:
            table = pa.Table.from_batches(list(pieces))
            pieces = _in_order(table).to_batches(max_chunksize=MOST_ROWS) if len(table) else iter(())
        yield from ((cut.batch_id, rows) for rows in pieces)


def _log_offset(cut: BatchEnd) -> int:
    return int(json.loads(cut.end)["logOffset"])


def _rows(path: Path, read_ms: int, source: FileSource, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, as the job has read them."""
    if not path.exists():
        message = f"events {path}: was read by the job and is gone; put it back, so that it can be archived"
        raise BucketsError(message)
    if modified_ms(path) != read_ms:
        message = f"events {path}: has changed since the job read it; put the file back as it was, with its time"
        raise BucketsError(message)
    if not path.stat().st_size:  # Spark passes over it, whatever its format
        return iter(())
    readable = schema_to_read(schema)
    if source.file_format == "parquet":
        rows = read_arrivals(path, read_ms, readable, source.arrival)
    elif schema.records is not None:
        rows = record_arrivals(path, read_ms, readable)
    else:
        rows = line_reader(source.file_format, readable, None)(_lines(path, read_ms))
    return as_declared(rows, schema, source.folder)


def _lines(path: Path, modified_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a text file, which may be compressed."""
    with open_text(path, "put the file back as the job has read it") as file:
        while lines := [line.removesuffix(b"\n") for line in islice(file, MOST_ROWS)]:
            order = pa.repeat(pa.scalar(modified_ms, pa.int64()), len(lines))
            source = pa.repeat(pa.scalar(str(path)), len(lines))
            yield pa.record_batch({RAW: pa.array(lines, pa.binary()), SOURCE: source, SOURCE_ORDER: order})

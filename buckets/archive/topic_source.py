"""The messages of a topic that a job has read, from the audit's table of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from buckets.audit.folder import AuditFolder, audit_settings
from buckets.audit.messages import kept_messages
from buckets.audit.tables import TOPIC_ID, TRANSACTIONS
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.pinned_schemas import pinned_schemas
from buckets.checkpoint.source_offsets import SourceOffsets, TopicOffsets
from buckets.checkpoint.topic_generations import Offsets, TopicGeneration, TopicGenerations, generation_name
from buckets.checkpoint.topic_values import TopicValues
from buckets.config.job import Job
from buckets.delta.query import sql_text
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, SOURCE, SOURCE_ORDER
from buckets.events.message_fields import columns_beside_value
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema

_MOST_MESSAGES = 1_000_000
"""Messages that are read at once, about."""


def topic_arrivals(
    job: Job, before: Cut | None, cuts: Sequence[Cut], schemas: Mapping[int, EventSchema]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the messages of batches, by partition, topic and offset; only of batches that the audit has reached.

    Raises:
        BucketsError: the configuration has no audit, or it has kept nothing yet.
    """
    source = job.settings.source
    beside = frozenset(name for schema in schemas.values() for name in columns_beside_value(schema, source.envelope))
    values, pinned_of = TopicValues(source, job.checkpoint), pinned_schemas(job)
    topics = source.selection.of(TopicGenerations(job.checkpoint).topics)
    of_topics = [_of_topic(job, topic, before, cuts, beside) for topic in topics]
    # A topic that the audit has not read as far ends all of them.
    for cut, *tables in zip(cuts, *of_topics, strict=False):
        (rows,) = tables if len(tables) == 1 else [_in_order(tables)]
        for piece in rows.to_batches(max_chunksize=MOST_ROWS):
            yield cut.batch_id, values.read(piece, schemas[cut.batch_id], cut.batch_id, pinned_of(cut.batch_id))


def _in_order(tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    return rows.sort_by([(name, "ascending") for name in (SOURCE_ORDER, SOURCE, POSITION)]).combine_chunks()


def _of_topic(
    job: Job, topic: str, before: Cut | None, cuts: Sequence[Cut], beside: frozenset[str]
) -> Iterator[pa.Table]:
    """Yield the messages of a topic in each batch, as arrivals before their values are read."""
    folder = AuditFolder(audit_settings(job))
    generations = TopicGenerations(job.checkpoint).of(topic) or (TopicGeneration(""),)
    reached = _reached(folder, topic, generations)
    last = _offsets(SourceOffsets(job.checkpoint).before(0), topic) if before is None else _end(before, topic)
    for number, generation in enumerate(generations, 1):
        own_cuts = _cuts_of(generations, number, cuts)
        if not own_cuts:
            continue
        if generation.first_batch == own_cuts[0].batch_id and number > 1:
            last = generation.begin
        kept = [cut for cut in own_cuts if _is_within(_end(cut, topic), reached[number - 1])]
        topic_range = _TopicRange(folder.tables / TRANSACTIONS, topic, number, generation.topic_id, beside)
        for group in _groups(kept, topic, last):
            messages = _messages(topic_range, last, _end(group[-1], topic))
            for cut in group:
                end = _end(cut, topic)
                yield _between(messages, last, end)
                last = end
        if len(kept) < len(own_cuts):
            return


class _TopicRange(NamedTuple):
    """The messages of a generation of a topic, from 1, in the audit's table; the id is empty where it is not known.

    With those of their columns that are needed beside the values.
    """

    table: Path
    topic: str
    number: int
    topic_id: str
    beside: frozenset[str]


def _cuts_of(generations: Sequence[TopicGeneration], number: int, cuts: Sequence[Cut]) -> list[Cut]:
    """Return the batches that have read a generation; those before the first one count to it, and have none of it."""
    begin = generations[number - 1].first_batch if number > 1 else 0
    until = generations[number].first_batch if number < len(generations) else None
    return [cut for cut in cuts if begin <= cut.batch_id and (until is None or cut.batch_id < until)]


def _end(cut: Cut, topic: str) -> Offsets:
    return _offsets(json.loads(cut.end), topic)


def _offsets(written: TopicOffsets, topic: str) -> Offsets:
    return {int(partition): offset for partition, offset in written.get(topic, {}).items()}


def _reached(folder: AuditFolder, topic: str, generations: Sequence[TopicGeneration]) -> list[Offsets]:
    """Return how far the audit has read each generation of the topic.

    Raises:
        BucketsError: it has read nothing.
    """
    offsets = SourceOffsets(folder.checkpoint)
    if offsets.ended is None:
        message = f"audit {folder.tables} holds nothing yet; run `buckets audit CONF --once` first"
        raise BucketsError(message)
    now = _offsets(offsets.end(offsets.ended), topic)
    known = TopicGenerations(folder.checkpoint).of(topic)
    ends = {generation.topic_id: now if generation.end is None else generation.end for generation in known}
    # An audit of an earlier release knows no ids.
    return [ends.get(generation.topic_id, {}) if known and generation.topic_id else now for generation in generations]


def _is_within(end: Offsets, reached: Offsets) -> bool:
    return all(offset <= reached.get(partition, 0) for partition, offset in end.items())


def _groups(cuts: Sequence[Cut], topic: str, before: Offsets) -> Iterator[list[Cut]]:
    """Split batches that follow each other, so that about a million messages are read at once."""
    group: list[Cut] = []
    begin = sum(before.values())
    for cut in cuts:
        group.append(cut)
        end = sum(_end(cut, topic).values())
        if end - begin >= _MOST_MESSAGES:
            yield group
            group, begin = [], end
    if group:
        yield group


def _messages(topic_range: _TopicRange, last: Offsets, end: Offsets) -> pa.Table:
    """Return messages of a generation, as arrivals before their values are read, by partition and offset."""
    ranges = [
        f'"partition" = {partition} and "offset" >= {last.get(partition, 0)} and "offset" < {offset}'
        for partition, offset in end.items()
    ]
    table = open_table(topic_range.table)
    where = f"{_is_of(topic_range, table)} and (({') or ('.join(ranges or ['false'])}))"
    messages = kept_messages(table, topic_range.table, where, topic_range.beside)
    name = generation_name(topic_range.topic, topic_range.number)
    names = pc.binary_join_element_wise(f"{name}[", messages[SOURCE_ORDER].cast(pa.string()), "]", "")
    return messages.append_column(SOURCE, names.cast(pa.string())).combine_chunks()


def _is_of(topic_range: _TopicRange, table: DeltaTable) -> str:
    """Return the condition on messages of a generation; those that an earlier release has kept have no id."""
    is_topic = f"topic = {sql_text(topic_range.topic)}"
    if not topic_range.topic_id or all(field.name != TOPIC_ID for field in table.schema().fields):
        return is_topic
    unknown = f"{TOPIC_ID} is null or " if topic_range.number == 1 else ""
    return f"{is_topic} and ({unknown}{TOPIC_ID} = '{topic_range.topic_id}')"


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

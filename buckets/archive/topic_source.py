"""The messages of a topic that a job has read, from the audit's table of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from buckets.audit.folder import AuditFolder, audit_settings
from buckets.audit.tables import TOPIC_ID, TRANSACTIONS
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.topic_generations import Offsets, TopicGeneration, TopicGenerations, generation_name
from buckets.config.job import Job
from buckets.delta.query import in_ms, query, sql_text
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.arrivals import INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema
from buckets.events.text_lines import as_text

_MOST_MESSAGES = 1_000_000
"""Messages that are read at once, about."""


def topic_arrivals(
    job: Job, before: Cut | None, cuts: Sequence[Cut], schemas: Mapping[int, EventSchema]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The messages of batches, in the order of partition and offset; only batches that the audit has reached.

    Raises:
        BucketsError: the configuration has no audit, or it has kept nothing yet.
    """
    topic = job.settings.source.topic
    assert topic is not None
    folder = AuditFolder(audit_settings(job))
    generations = TopicGenerations(job.checkpoint).of(topic) or (TopicGeneration(""),)
    reached = _reached(folder, topic, generations)
    last = _begun(job.checkpoint, topic) if before is None else _offsets(before.end, topic)
    for number, generation in enumerate(generations, 1):
        mine = _cuts_of(generations, number, cuts)
        if not mine:
            continue
        if generation.first_batch == mine[0].batch_id and number > 1:
            last = generation.begin
        kept = [cut for cut in mine if _is_within(_offsets(cut.end, topic), reached[number - 1])]
        stretch = _Stretch(folder.tables / TRANSACTIONS, topic, number, generation.topic_id)
        for group in _groups(kept, topic, last):
            messages = _messages(stretch, last, _offsets(group[-1].end, topic))
            for cut in group:
                end = _offsets(cut.end, topic)
                rows = _between(messages, last, end)
                for piece in rows.to_batches(max_chunksize=MOST_ROWS):
                    yield cut.batch_id, read_events(as_text(piece), schemas[cut.batch_id])
                last = end
        if len(kept) < len(mine):
            return


class _Stretch(NamedTuple):
    """Where the messages of a generation of a topic are.

    Attributes:
        table: the audit's table.
        topic: the name.
        number: of the generation, from 1.
        topic_id: its id; empty where it is not known.
    """

    table: Path
    topic: str
    number: int
    topic_id: str


def _cuts_of(generations: Sequence[TopicGeneration], number: int, cuts: Sequence[Cut]) -> list[Cut]:
    """The batches that have read a generation."""
    begin = generations[number - 1].first_batch
    until = generations[number].first_batch if number < len(generations) else None
    return [cut for cut in cuts if begin <= cut.batch_id and (until is None or cut.batch_id < until)]


def _offsets(text: str, topic: str) -> Offsets:
    return {int(partition): offset for partition, offset in json.loads(text).get(topic, {}).items()}


def _begun(checkpoint: Path, topic: str) -> Offsets:
    """Where the job began in the topic, as Spark has written it."""
    text = (spark_folder(checkpoint) / "sources" / "0" / "0").read_text(encoding="utf-8")
    return _offsets(text.splitlines()[-1], topic)


def _reached(folder: AuditFolder, topic: str, generations: Sequence[TopicGeneration]) -> list[Offsets]:
    """How far the audit has read each generation of the topic.

    Raises:
        BucketsError: it has read nothing.
    """
    done = [int(file.name) for file in (folder.spark_checkpoint / "commits").glob("[0-9]*") if file.name.isdecimal()]
    if not done:
        message = f"audit {folder.tables} holds nothing yet; run `buckets audit CONF --once` first"
        raise BucketsError(message)
    text = (folder.spark_checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8")
    now = _offsets(text.splitlines()[-1], topic)
    known = TopicGenerations(folder.checkpoint).of(topic)
    ends = {each.topic_id: now if each.end is None else each.end for each in known}
    # An audit of an earlier release knows no ids.
    return [ends.get(each.topic_id, {}) if known and each.topic_id else now for each in generations]


def _is_within(end: Offsets, reached: Offsets) -> bool:
    return all(offset <= reached.get(partition, 0) for partition, offset in end.items())


def _groups(cuts: Sequence[Cut], topic: str, before: Offsets) -> Iterator[list[Cut]]:
    """Batches that follow each other, so many that about a million messages are read at once."""
    group: list[Cut] = []
    begin = sum(before.values())
    for cut in cuts:
        group.append(cut)
        end = sum(_offsets(cut.end, topic).values())
        if end - begin >= _MOST_MESSAGES:
            yield group
            group, begin = [], end
    if group:
        yield group


def _messages(stretch: _Stretch, last: Offsets, end: Offsets) -> pa.Table:
    """Messages of a stretch, as arrivals before their text is read, by partition and offset."""
    ranges = [
        f'"partition" = {partition} and "offset" >= {last.get(partition, 0)} and "offset" < {offset}'
        for partition, offset in end.items()
    ]
    table = open_table(stretch.table)
    sql = (
        'select "partition", "offset", "published_at", "value", "value_bytes" from rows '
        f'where {_is_of(stretch, table)} and (({") or (".join(ranges)})) order by "partition", "offset"'
    )
    found = in_ms(query(table, sql, f"audit {stretch.table}"))
    text = pc.coalesce(found["value_bytes"], found["value"].cast(pa.binary()), pa.scalar(b""))
    partitions = found["partition"].cast(pa.int64())
    name = generation_name(stretch.topic, stretch.number)
    names = pc.binary_join_element_wise(f"{name}[", partitions.cast(pa.string()), "]", "")
    return pa.table(
        {
            RAW: text,
            SOURCE: names.cast(pa.string()),
            SOURCE_ORDER: partitions,
            POSITION: found["offset"],
            INGESTED: found["published_at"],
        }
    ).combine_chunks()


def _is_of(stretch: _Stretch, table: DeltaTable) -> str:
    """The condition on messages of a generation; those that an earlier release has kept have no id."""
    is_topic = f"topic = {sql_text(stretch.topic)}"
    if not stretch.topic_id or all(field.name != TOPIC_ID for field in table.schema().fields):
        return is_topic
    unknown = f"{TOPIC_ID} is null or " if stretch.number == 1 else ""
    return f"{is_topic} and ({unknown}{TOPIC_ID} = '{stretch.topic_id}')"


def _between(messages: pa.Table, last: Offsets, end: Offsets) -> pa.Table:
    """The messages of one batch."""
    inside = pa.array([False] * len(messages), pa.bool_())
    for partition, offset in end.items():
        of_it = pc.and_(
            pc.equal(messages[SOURCE_ORDER], partition),
            pc.and_(pc.greater_equal(messages[POSITION], last.get(partition, 0)), pc.less(messages[POSITION], offset)),
        )
        inside = pc.or_(inside, of_it)
    return messages.filter(inside).combine_chunks()

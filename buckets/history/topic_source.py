"""The messages of a topic that a job has read, from the audit's table of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from buckets.audit.folder import AuditFolder, audit_settings
from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.folders import spark_folder
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.events.arrivals import INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema
from buckets.events.text_lines import as_text

Offsets = Mapping[int, int]
"""By partition, the offset after the last message."""
_MOST_MESSAGES = 1_000_000
"""Messages that are read at once, about."""


def topic_arrivals(
    job: Job, before: Cut | None, cuts: Sequence[Cut], schemas: Mapping[int, EventSchema]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The messages of batches, in the order of partition and offset; only batches that the audit has reached.

    Args:
        job: whose topic it is.
        before: the batch before the first.
        cuts: the batches.
        schemas: by batch, the event schema.

    Raises:
        BucketsError: the configuration has no audit, or it has kept nothing yet.
    """
    topic = job.settings.source.topic
    assert topic is not None
    folder = AuditFolder(audit_settings(job))
    reached = _reached(folder, topic)
    last = _begun(job.checkpoint, topic) if before is None else _offsets(before.end, topic)
    for group in _groups([cut for cut in cuts if _is_within(_offsets(cut.end, topic), reached)], topic, last):
        messages = _messages(folder.tables / TRANSACTIONS, topic, last, _offsets(group[-1].end, topic))
        for cut in group:
            end = _offsets(cut.end, topic)
            rows = _between(messages, last, end)
            for piece in rows.to_batches(max_chunksize=MOST_ROWS):
                yield cut.batch_id, read_events(as_text(piece), schemas[cut.batch_id])
            last = end


def _offsets(text: str, topic: str) -> Offsets:
    return {int(partition): offset for partition, offset in json.loads(text).get(topic, {}).items()}


def _begun(checkpoint: Path, topic: str) -> Offsets:
    """Where the job began in the topic, as Spark has written it."""
    text = (spark_folder(checkpoint) / "sources" / "0" / "0").read_text(encoding="utf-8")
    return _offsets(text.splitlines()[-1], topic)


def _reached(folder: AuditFolder, topic: str) -> Offsets:
    """How far the audit has read the topic.

    Raises:
        BucketsError: not at all.
    """
    done = [int(file.name) for file in (folder.spark_checkpoint / "commits").glob("[0-9]*") if file.name.isdecimal()]
    if not done:
        message = f"audit {folder.tables} holds nothing yet; run `buckets audit CONF --once` first"
        raise BucketsError(message)
    text = (folder.spark_checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8")
    return _offsets(text.splitlines()[-1], topic)


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


def _messages(table: Path, topic: str, last: Offsets, end: Offsets) -> pa.Table:
    """Messages of a stretch, as arrivals before their text is read, by partition and offset."""
    ranges = [
        f'"partition" = {partition} and "offset" >= {last.get(partition, 0)} and "offset" < {offset}'
        for partition, offset in end.items()
    ]
    quoted = topic.replace("'", "''")
    sql = (
        'select "partition", "offset", "published_at", "value", "value_bytes" from messages '
        f'where topic = \'{quoted}\' and (({") or (".join(ranges)})) order by "partition", "offset"'
    )
    found = pa.table(QueryBuilder().register("messages", DeltaTable(table)).execute(sql).read_all())
    text = pc.coalesce(found["value_bytes"].cast(pa.binary()), found["value"].cast(pa.binary()), pa.scalar(b""))
    partitions = found["partition"].cast(pa.int64())
    names = pc.binary_join_element_wise(f"{topic}[", partitions.cast(pa.string()), "]", "")
    return pa.table(
        {
            RAW: text,
            SOURCE: names.cast(pa.string()),
            SOURCE_ORDER: partitions,
            POSITION: found["offset"],
            INGESTED: found["published_at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()),
        }
    ).combine_chunks()


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

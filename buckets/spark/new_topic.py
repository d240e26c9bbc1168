"""Continues with a topic that was deleted and created again: from its beginning, keeping the checkpoint's state.

Spark's offsets for the next batch are changed, and a batch planned in the old topic is abandoned because its messages
are gone. The new topic id is written last, so an interrupted change is redone completely. A topic that the pattern had
found is dropped once it is gone.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from buckets.archive.archive import table_of
from buckets.archive.archive_writer import ARCHIVE
from buckets.audit.folder import AuditFolder
from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.lock import Lock
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.checkpoint.topic_generations import TopicGeneration
from buckets.config.job import Job
from buckets.delta.whole_table import last_number
from buckets.errors import BucketsError
from buckets.kafka.topic_guard import TopicGuard
from buckets.outputs.columns import TABLES
from buckets.stores.location import location


def go_on_in_new_topic(job: Job, identity: str, guard: TopicGuard, say: Callable[[str], None]) -> None:
    """Let a job read its recreated source topic from the beginning; its state stays."""
    offsets = SourceOffsets(job.checkpoint)
    _go_on(guard, offsets, say, lambda batch_id: _give_up(job, identity, batch_id, offsets, say))


def go_on_in_new_topics(
    topics: Mapping[str, str], folder: AuditFolder, identity: str, guard: TopicGuard, say: Callable[[str], None]
) -> None:
    """Let an audit read recreated topics from their beginning; its tables stay."""
    offsets = SourceOffsets(folder.checkpoint)

    def give_up(batch_id: int) -> None:
        # The number is used up: tables that have it accept nothing more under it. Messages without an id that are in
        # their table already are not read again; others are, and repeats among them are dropped by their id.
        written = _written_with(folder.tables / TRANSACTIONS, TRANSACTIONS, identity) == batch_id
        moved = {topic: end for topic, end in offsets.end(batch_id).items() if topics.get(topic) == TRANSACTIONS}
        offsets.move(batch_id + 1, offsets.before(batch_id) | (moved if written else {}))
        offsets.finish(batch_id)

    with Lock(folder.checkpoint):
        _go_on(guard, offsets, say, give_up)


def _give_up(job: Job, identity: str, batch_id: int, offsets: SourceOffsets, say: Callable[[str], None]) -> None:
    """Abandon a batch that was planned in the old topic, whose messages are gone."""
    record = Checkpoint(job.checkpoint).batches.record(batch_id)
    if record is not None and record.done:
        offsets.finish(batch_id)
        return
    folder, archive = job.settings.output.folder, job.settings.archive
    tables = [] if folder is None else [(name, folder / name) for name in TABLES]
    if archive is not None:
        tables.append((ARCHIVE, table_of(location(archive.path))))
    written = [name for name, table in tables if _written_with(table, name, identity) == batch_id]
    if written:
        message = (
            f"batch {batch_id} of checkpoint {job.checkpoint} is half written ({', '.join(written)}), and what it "
            "lacks has gone with the old topic; name a new checkpoint, a new output folder and a new archive.path"
        )
        raise BucketsError(message)
    begin, ends = offsets.before(batch_id), offsets.end(batch_id)
    lost = sum(at - begin.get(topic, {}).get(part, 0) for topic, parts in ends.items() for part, at in parts.items())
    offsets.drop(batch_id)
    say(
        f"batch {batch_id} had begun and not ended: those of its {lost:,} messages that were in the old topic are "
        "gone, and not scored"
    )


def _go_on(
    guard: TopicGuard, offsets: SourceOffsets, say: Callable[[str], None], give_up: Callable[[int], None]
) -> None:
    """Start the next batch at the beginning of recreated topics and without those that are gone, and record that.

    An unfinished batch is abandoned. Topic ids are read first: if a topic is created again meanwhile, the next check
    sees it.
    """
    unfinished = offsets.unfinished
    renewed, gone = guard.renewed(), guard.gone()
    lost = guard.lost([] if unfinished is None else offsets.end(unfinished))  # Gone before any of it was read
    if not (renewed or gone or lost):
        say("no topic was created again or is gone; --new-topic changes nothing")
        return
    if unfinished is not None:
        give_up(unfinished)
    next_batch = offsets.next_batch
    beginnings = {topic: guard.beginning(topic) for topic in renewed}
    begins = {topic: {str(key): at for key, at in begin.items()} for topic, begin in beginnings.items()}
    offsets.move(next_batch, begins, without=[*gone, *lost])
    for topic in beginnings:
        guard.generations.add(topic, TopicGeneration(renewed[topic]))
        say(f"topic {topic} was created again, and is read from its beginning with batch {next_batch}")
    for topic in gone:
        guard.generations.let_go(topic)
        say(f"topic {topic} is gone, and is not read any more from batch {next_batch} on")


def _written_with(table: Path, name: str, identity: str) -> int | None:
    """Return the last batch of a checkpoint that a table contains; None if there is no batch or no table."""
    return last_number(table, f"{identity}-{name}") if table.exists() else None

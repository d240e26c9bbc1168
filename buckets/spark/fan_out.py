"""The stateless stage: `fan_out` over the Arrow batches of a task. Workers load it, so it imports no driver code."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from buckets.archive.arrived_rows import ArrivedInTask, archived_rows
from buckets.checkpoint.identity import Terms
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import FannedOut, ShardMessage, fan_out
from buckets.engine.batch.payload import PASSING
from buckets.events.arrivals import convert
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet
from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, spill_of_task, terms_of_task
from buckets.spark.frame_rows import ROW, rows_payload
from buckets.spark.sources import Normalise

COLUMNS = "shard int, payload binary"


@dataclass(frozen=True)
class FanOut:
    """The first stage in a task: rows of a source become messages to shards, in `COLUMNS`."""

    normalise: Normalise  # brings the rows into the form of `events.arrivals`
    is_archived: bool = False  # whether rows of the archive come out besides

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a task, packed for another one."""
        for fanned in self.fanned(batches):
            messages = list(fanned.messages())
            shards = pa.array([message.shard for message in messages], pa.int32())
            payloads = pa.array([message.payload for message in messages], pa.binary())
            yield pa.RecordBatch.from_arrays([shards, payloads], names=["shard", "payload"])

    def fanned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[FannedOut]:
        """Yield what each piece of the rows comes to, not packed."""
        rule_set, terms, lists = rule_set_of_task(), terms_of_task(), lists_of_task()
        arrived = ArrivedInTask() if self.is_archived else None
        yield from fan_out_rows(self.normalise(batches, terms.event_schema), rule_set, terms, lists, arrived)
        handed_over = None if arrived is None else arrived.handed_over(spill_of_task()[0] / f"{uuid.uuid4()}.arrived")
        if handed_over is not None:
            yield FannedOut(None, [ShardMessage(PASSING, payload.ARRIVED + handed_over.packed())])


def fan_out_rows(
    arrivals: Iterable[pa.RecordBatch],
    rule_set: RuleSet,
    terms: Terms,
    lists: Lists = NO_LISTS,
    arrived: ArrivedInTask | None = None,
) -> Iterator[FannedOut]:
    """Fan out each piece of a task's arrivals, as in `events.arrivals`; what is archived is gathered in `arrived`."""
    schema, engine = terms.event_schema, terms.engine
    required = engine.required(rule_set.needed_fields)
    for rows in arrivals:
        if rows.num_rows:
            parsed = convert(rows, schema, required)
            fanned = fan_out(rows, rule_set, schema, engine, lists, parsed=parsed)
            if ROW in rows.schema.names:
                fanned = replace(fanned, others=[*fanned.others, ShardMessage(PASSING, rows_payload(rows))])
            if arrived is not None:
                arrived.take(archived_rows(rows, parsed, schema))
            yield fanned

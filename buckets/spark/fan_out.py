"""The stateless stage: `fan_out` over the Arrow batches of a task. Workers load it, so it imports no driver code."""

import uuid
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from buckets.archive.arrived_rows import ArrivedInTask, archived_rows
from buckets.checkpoint.identity import Terms
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import ShardMessage, fan_out
from buckets.engine.batch.payload import PASSING
from buckets.events.arrivals import convert
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet
from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, spill_of_task, terms_of_task
from buckets.spark.frame_rows import ROW, rows_payload
from buckets.spark.sources import ArrivalStream
from buckets.spark.worker import Stage

COLUMNS = "shard int, payload binary"


def fan_out_stage(arrivals: ArrivalStream, is_archived: bool = False) -> Stage:
    """Return what turns arrivals into messages to the shards, and with `is_archived` rows of the archive besides."""
    normalise = arrivals.normalise

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule_set, terms, lists = rule_set_of_task(), terms_of_task(), lists_of_task()
        arrived = ArrivedInTask() if is_archived else None
        yield from fan_out_rows(normalise(batches, terms.event_schema), rule_set, terms, lists, arrived)
        handed_over = None if arrived is None else arrived.handed_over(spill_of_task()[0] / f"{uuid.uuid4()}.arrived")
        if handed_over is not None:
            yield _messages([PASSING], [payload.ARRIVED + handed_over.packed()])

    return stage


def fan_out_rows(
    arrivals: Iterable[pa.RecordBatch],
    rule_set: RuleSet,
    terms: Terms,
    lists: Lists = NO_LISTS,
    arrived: ArrivedInTask | None = None,
) -> Iterator[pa.RecordBatch]:
    """Turn each piece of a task's arrivals, as in `events.arrivals`, into messages to the shards, in `COLUMNS`.

    What is archived of them is gathered in `arrived`.
    """
    schema, engine = terms.event_schema, terms.engine
    required = engine.required(rule_set.needed_fields)
    for rows in arrivals:
        if rows.num_rows:
            parsed = convert(rows, schema, required)
            messages = list(fan_out(rows, rule_set, schema, engine, lists, parsed=parsed).messages())
            if ROW in rows.schema.names:
                messages.append(ShardMessage(PASSING, rows_payload(rows)))
            if arrived is not None:
                arrived.take(archived_rows(rows, parsed, schema))
            yield _messages([message.shard for message in messages], [message.payload for message in messages])


def _messages(shards: Sequence[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    columns = [pa.array(shards, pa.int32()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["shard", "payload"])

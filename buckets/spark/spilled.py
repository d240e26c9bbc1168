"""Payloads of a batch that are too large for the driver: files beside its records that the driver knows.

What shards put out comes to the driver, up to a share of each shard. They write the rest into a file, one a shard, and
put out where it lies. So the driver never gets more than it can hold, whatever the size of a batch, and tasks work on
the files. These go when the batch is written; those of a killed task go with the next start.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from buckets.checkpoint.identity import Terms
from buckets.checkpoint.source_offsets import records_folder
from buckets.engine.batch import payload
from buckets.engine.stages.accounting import cut_by_event, cut_by_key
from buckets.engine.stages.cross_group import FILLS, PARTS
from buckets.engine.stages.in_memory import OutputDecoder
from buckets.engine.stages.shard import ARRIVED, COUNTS, Produced
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet
from buckets.spark.batch_properties import spill_of_task
from buckets.stores.location import as_output, found_location

MESSAGE_BYTES = 3_000
"""What a row counts that becomes a message: it takes about so much until it is sent, however small its payload is."""
_NEVER = (COUNTS, FILLS, ARRIVED)


@dataclass(frozen=True)
class Spilled:
    """A payload that lies in a file."""

    path: str  # the file
    ends: tuple[int, ...]  # where the payload begins, and where each of its pieces ends

    def as_payload(self) -> bytes:
        """Return what stands in its place."""
        return payload.SPILLED + json.dumps([self.path, *self.ends]).encode()

    def payloads(self, pieces: Iterable[int] | None = None) -> Iterator[bytes]:
        """Yield its pieces, or those of some numbers, without empty ones; each is a payload."""
        with found_location(self.path).open("rb") as file:
            for number in range(len(self.ends) - 1) if pieces is None else pieces:
                start, end = self.ends[number : number + 2]
                if end > start:
                    file.seek(start)
                    yield file.read(end - start)


def spilled(packed: bytes) -> Spilled | None:
    """Return where a payload lies; None where it is one itself."""
    if packed[:1] != payload.SPILLED:
        return None
    path, *ends = json.loads(packed[1:])
    return Spilled(path, tuple(ends))


def payloads_of(packed: bytes) -> Iterator[bytes]:
    """Yield a payload, or the pieces of the one that lies where it says."""
    at = spilled(packed)
    if at is None:
        yield packed
    else:
        yield from at.payloads()


def spill_folder(checkpoint: Path) -> Path:
    """Return where the payloads of a job lie that do not come to the driver."""
    return records_folder(checkpoint) / "spilled"


def beyond_share(produced: Iterable[Produced], shares: int, rule_set: RuleSet, terms: Terms) -> Iterator[Produced]:
    """Yield what was put out in a task; what is beyond its share of the driver lies in a file once all is taken.

    The batch has so many shares: of shards, or of pieces.
    """
    folder, driver_bytes = spill_of_task()
    left, path = driver_bytes // shares, folder / f"{uuid.uuid4()}.payloads"
    sink: IO[bytes] | None = None
    with ExitStack() as stack:
        for one in produced:
            size_bytes = 0 if one.output in _NEVER else len(one.payload)
            if is_cut_by_key(one.output, terms):
                size_bytes = max(size_bytes, one.rows * MESSAGE_BYTES)
            if size_bytes <= left:
                left -= size_bytes
                yield one
                continue
            if sink is None:
                sink = stack.enter_context(as_output(path))
            ends = [sink.tell()]
            for piece in _cut(one, rule_set, terms):
                sink.write(piece)
                ends.append(sink.tell())
            yield replace(one, payload=Spilled(str(path), tuple(ends)).as_payload())


def _cut(produced: Produced, rule_set: RuleSet, terms: Terms) -> list[bytes]:
    """Cut a payload as those need it who work on it: by event, by key, or not at all."""
    if produced.output == PARTS:
        return cut_by_event(produced.payload)
    if is_cut_by_key(produced.output, terms):
        decoder = OutputDecoder(rule_set, terms.event_schema, terms.engine)
        return cut_by_key(decoder.table(produced.output, [produced.payload]))
    return [produced.payload]


def is_cut_by_key(output: str, terms: Terms) -> bool:
    """Return whether an output is cut by the keys of its messages: it goes to a topic, and its rows have keys."""
    return terms.output == "kafka" and output in columns.TOPICS and output != columns.DEAD_LETTERS

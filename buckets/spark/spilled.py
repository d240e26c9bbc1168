"""Payloads too large for the driver: files beside the checkpoint's records, whose locations the driver knows.

Each shard sends its results to the driver, up to its share of the driver's memory. It writes the rest into one file and
sends the location instead. So the driver's memory suffices for a batch of any size, and tasks process the files. They
are removed when the batch is written, those of a killed task at the next start.
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
"""The least that counts for a row that becomes a message: until sent it takes about this much, however small."""
_NEVER = (COUNTS, FILLS, ARRIVED)


@dataclass(frozen=True)
class Spilled:
    """A payload in a file."""

    path: str  # the file
    ends: tuple[int, ...]  # the start of the payload, and the end of each of its pieces

    def as_payload(self) -> bytes:
        """Return the placeholder that is sent instead of the payload."""
        return payload.SPILLED + json.dumps([self.path, *self.ends]).encode()

    def payloads(self, pieces: Iterable[int] | None = None) -> Iterator[bytes]:
        """Yield all pieces, or those with the given numbers; each is a payload, and empty ones are skipped."""
        with found_location(self.path).open("rb") as file:
            for number in range(len(self.ends) - 1) if pieces is None else pieces:
                start, end = self.ends[number : number + 2]
                if end > start:
                    file.seek(start)
                    yield file.read(end - start)


def spilled(packed: bytes) -> Spilled | None:
    """Return the location of a spilled payload; None for any other payload."""
    if packed[:1] != payload.SPILLED:
        return None
    path, *ends = json.loads(packed[1:])
    return Spilled(path, tuple(ends))


def payloads_of(packed: bytes) -> Iterator[bytes]:
    """Yield a payload itself, or the pieces of a spilled one."""
    at = spilled(packed)
    if at is None:
        yield packed
    else:
        yield from at.payloads()


def spill_folder(checkpoint: Path) -> Path:
    """Return the folder for a job's spilled payloads."""
    return records_folder(checkpoint) / "spilled"


def beyond_share(produced: Iterable[Produced], shares: int, rule_set: RuleSet, terms: Terms) -> Iterator[Produced]:
    """Yield the results of a task, with those beyond its share of the driver's memory written to one file.

    The memory is divided into `shares`, one per shard or per piece. The file is complete once everything is consumed.
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
    """Split a payload the way its readers need it: by event, by key, or not at all."""
    if produced.output == PARTS:
        return cut_by_event(produced.payload)
    if is_cut_by_key(produced.output, terms):
        decoder = OutputDecoder(rule_set, terms.event_schema, terms.engine)
        return cut_by_key(decoder.table(produced.output, [produced.payload]))
    return [produced.payload]


def is_cut_by_key(output: str, terms: Terms) -> bool:
    """Return whether an output is split by message key: it goes to a topic, and its rows have keys."""
    return terms.output == "kafka" and output in columns.TOPICS and output != columns.DEAD_LETTERS

"""Where the stream was cut into batches, and what scored each of them; kept for good.

    CHECKPOINT/buckets/cuts/000000000.jsonl   a line for each of 10,000 batches that are written, each with a checksum

Records of batches are there to run a batch again, and old ones are forgotten. This is what an archive needs to say
years later which batch an arrival was in, and by which rules and lists it was scored.

A crash can leave the beginning of a line; its batch is run again then, and has a line of its own. So no batch is
missing up to the last one that Spark knows to be done, unless a line was damaged.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.numbered_records import NumberedRecords
from buckets.checkpoint.record_files import RecordFiles
from buckets.checkpoint.seal import seal_json, unseal_json
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.errors import BucketsError
from buckets.files import write_whole

_PER_FILE = 10_000
UNKNOWN = 0
"""The version of the rules of a batch that an earlier release has scored."""


@dataclass(frozen=True)
class Cut:
    """A batch that is written.

    Attributes:
        batch_id: the batch.
        ruleset_version: the version of the rules that scored it; `UNKNOWN` of the last batch of an earlier release.
        end: how far the source had been read with it, as Spark writes it, as JSON.
        lists: by name, the version of each list that it saw.
        span: the least and the greatest `source_order` of its events; None where it holds no event.
    """

    batch_id: int
    ruleset_version: int
    end: str
    lists: Mapping[str, int] = field(default_factory=dict)
    span: tuple[int, int] | None = None


class Cuts:
    """The cuts of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._records = RecordFiles(checkpoint)
        self._lines = NumberedRecords(self._records, self._records.folder / "cuts", ".jsonl")
        self._checkpoint = checkpoint

    def keep(self, batch_id: int, ruleset_version: int, lists: Mapping[str, int], span: tuple[int, int] | None) -> None:
        """Write the cut of a batch, whose offsets Spark has written; of the other arguments see `Cut`."""
        file, line = self._file(batch_id), _line(Cut(batch_id, ruleset_version, self._end(batch_id), lists, span))
        if file.exists():
            with file.open("ab") as written:
                # The first line feed ends what a crash has left of a line.
                written.write(b"\n" + line)
                written.flush()
                os.fsync(written.fileno())
        elif batch_id and not self._lines.numbers():
            write_whole(file, _line(Cut(batch_id - 1, UNKNOWN, self._end(batch_id - 1))) + line)
        else:
            write_whole(file, line)

    def read(self) -> list[Cut]:
        """Return all cuts, by their number. A batch that was run again after a crash is there once.

        Raises:
            BucketsError: one is missing, or damaged.
        """
        by_batch: dict[int, Cut] = {}
        for number in self._lines.numbers():
            for line in self._lines.file(number).read_bytes().split(b"\n"):
                cut = _read(line)
                if cut is not None:
                    by_batch[cut.batch_id] = cut
        cuts = [by_batch[batch_id] for batch_id in sorted(by_batch)]
        self._check(cuts)
        return cuts

    def _check(self, cuts: Sequence[Cut]) -> None:
        """See that the cut of each batch is there, from the first of the job or of this release to the last one."""
        if not self._lines.folder.exists():
            return
        if not cuts or (cuts[0].batch_id and cuts[0].ruleset_version != UNKNOWN):
            raise self._damage(0 if not cuts else cuts[0].batch_id - 1)
        for before, cut in itertools.pairwise(cuts):
            if cut.batch_id != before.batch_id + 1:
                raise self._damage(before.batch_id + 1)
        if cuts[-1].batch_id < (SourceOffsets(self._checkpoint).ended or 0):
            raise self._damage(cuts[-1].batch_id + 1)

    def _damage(self, batch_id: int) -> BucketsError:
        return self._records.damage(self._file(batch_id), f"the line of batch {batch_id} is missing or damaged")

    def _file(self, batch_id: int) -> Path:
        return self._lines.file(batch_id // _PER_FILE * _PER_FILE)

    def _end(self, batch_id: int) -> str:
        """Return how far the source had been read with a batch: the last line of what Spark has written."""
        return (spark_folder(self._checkpoint) / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()[-1]


def _read(line: bytes) -> Cut | None:
    """Return the cut of a line; None of an empty one, of what a crash has left, and of a damaged one."""
    try:
        record = unseal_json(line)
        span = record.get("span")
        return Cut(**(record | {"span": None if span is None else (span[0], span[1])}))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _line(cut: Cut) -> bytes:
    return seal_json({name: value for name, value in vars(cut).items() if value not in (None, {})}) + b"\n"

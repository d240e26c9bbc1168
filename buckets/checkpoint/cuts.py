"""Where the stream was cut into batches, and what scored each of them; kept for good.

    CHECKPOINT/buckets/cuts/000000000.jsonl   a line for each of 10,000 batches that are written

Records of batches are there to run a batch again, and old ones are forgotten. This is what an archive needs to say
years later which batch an arrival was in, and by which rules and lists it was scored.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from buckets.checkpoint.folders import records_folder, spark_folder

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
        """Look at a checkpoint; nothing is written yet."""
        self._folder = records_folder(checkpoint) / "cuts"
        self._offsets = spark_folder(checkpoint) / "offsets"

    def keep(self, batch_id: int, ruleset_version: int, lists: Mapping[str, int], span: tuple[int, int] | None) -> None:
        """Write the cut of a batch, whose offsets Spark has written.

        Args:
            batch_id: the batch.
            ruleset_version: of its rules.
            lists: the versions of its lists.
            span: the least and the greatest `source_order` of its events.
        """
        cuts = [Cut(batch_id, ruleset_version, self._end(batch_id), lists, span)]
        if batch_id and not self._folder.exists():
            cuts.insert(0, Cut(batch_id - 1, UNKNOWN, self._end(batch_id - 1)))
        self._folder.mkdir(parents=True, exist_ok=True)
        for cut in cuts:
            self._append(cut)

    def read(self) -> list[Cut]:
        """All cuts, by their number. A batch that was run again after a crash is there once."""
        found: dict[int, Cut] = {}
        for file in sorted(self._folder.glob("[0-9]*.jsonl")):
            for line in file.read_bytes().split(b"\n"):
                cut = _read(line)
                if cut is not None:
                    found[cut.batch_id] = cut
        return [found[batch_id] for batch_id in sorted(found)]

    def _append(self, cut: Cut) -> None:
        record = {name: value for name, value in vars(cut).items() if value not in (None, {})}
        file = self._folder / f"{cut.batch_id // _PER_FILE * _PER_FILE:09d}.jsonl"
        with file.open("ab") as written:
            # The first line feed ends what a crash has left of a line.
            written.write(b"\n" + json.dumps(record).encode() + b"\n")
            written.flush()
            os.fsync(written.fileno())

    def _end(self, batch_id: int) -> str:
        """How far the source had been read with a batch: the last line of what Spark has written."""
        return (self._offsets / str(batch_id)).read_text(encoding="utf-8").splitlines()[-1]


def _read(line: bytes) -> Cut | None:
    """The cut of a line; None of an empty one, and of what a crash has left."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    span = record.get("span")
    return Cut(**(record | {"span": None if span is None else (span[0], span[1])}))

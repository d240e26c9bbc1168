"""Which version of the rules evaluates which batch, which versions of the lists it sees, and under which terms.

    CHECKPOINT/buckets/terms/000000017.json    the terms from this batch on, until the next such file
    CHECKPOINT/buckets/batches/000000042.json  the record of a batch, written before it runs and again when it has run

A batch that is run again after a crash finds its record, and so its rules and its terms.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buckets.checkpoint.folders import records_folder
from buckets.checkpoint.terms import Terms
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.rules.completeness import Stretch, Stretches

KEPT_BATCHES = 200
"""Batch records that are kept; Spark itself can go back 100 batches."""


@dataclass(frozen=True)
class BatchRecord:
    """What is known of a batch that has begun.

    Attributes:
        ruleset_version: the version of the rules that evaluates it.
        arrived: the event times that have arrived up to this batch; empty until it has run.
        done: whether it has run.
        lists: by name, the version of each list that it sees.
    """

    ruleset_version: int
    arrived: Stretches
    done: bool
    lists: Mapping[str, int] = field(default_factory=dict)


class BatchRecords:
    """The records of a checkpoint's latest batches, and the terms of each."""

    def __init__(self, checkpoint: Path) -> None:
        """Look at a checkpoint; nothing is written yet."""
        self._checkpoint = checkpoint
        self._folder = records_folder(checkpoint) / "batches"
        self._terms_folder = records_folder(checkpoint) / "terms"

    def has_run(self) -> bool:
        """Whether some batch has begun."""
        return any(self._folder.glob("*.json"))

    def arrived(self) -> Stretches:
        """The event times that have arrived up to the newest batch that has run."""
        newest = sorted((int(file.stem) for file in self._folder.glob("*.json")), reverse=True)
        records = (self.record(batch_id) for batch_id in newest)
        return next((record.arrived for record in records if record is not None and record.done), ())

    def record(self, batch_id: int) -> BatchRecord | None:
        """The record of a batch; None of one that has not begun, or that Spark cannot go back to."""
        file = self._file(batch_id)
        if not file.exists():
            return None
        written = json.loads(file.read_text(encoding="utf-8"))
        return BatchRecord(written["ruleset_version"], _arrived(written), written["done"], written.get("lists", {}))

    def keep(self, batch_id: int, record: BatchRecord) -> None:
        """Write the record of a batch, and forget those that Spark cannot go back to."""
        written = {name: value for name, value in vars(record).items() if name != "lists" or value}
        write_whole(self._file(batch_id), json.dumps(written))
        self._file(batch_id - KEPT_BATCHES).unlink(missing_ok=True)

    def oldest_lists(self) -> dict[str, int]:
        """Of each list the oldest version that a batch is recorded with. Cost: of all records."""
        oldest: dict[str, int] = {}
        for file in self._folder.glob("*.json"):
            for name, version in json.loads(file.read_text(encoding="utf-8")).get("lists", {}).items():
                oldest[name] = min(version, oldest.get(name, version))
        return oldest

    def terms_for(self, batch_id: int, now: Terms) -> Terms:
        """The terms of a batch: those it was begun with, also when it is run again.

        This is asked before the batch is recorded: a batch that has no record yet begins with the terms of now, which
        are written if they differ from the ones before.

        Args:
            batch_id: the batch.
            now: the terms of this start of the job.

        Raises:
            BucketsError: the batch was begun with something that this start cannot go on with.
        """
        before = self._terms_text(batch_id)
        if not self._file(batch_id).exists():
            text = now.model_dump_json()
            if text != before:
                write_whole(self._terms_file(batch_id), text)
            return now
        if before is None:  # An earlier release wrote none.
            return now
        begun = Terms.model_validate_json(before)
        conflict = now.conflict(begun)
        if conflict:
            message = (
                f"batch {batch_id} of checkpoint {self._checkpoint} {conflict}, and may be half written; go back to "
                "that until the batch is done, and change it then"
            )
            raise BucketsError(message)
        return begun

    def all_terms(self) -> dict[int, Terms]:
        """All terms there ever were, by the first batch that each was in force for, ascending."""
        files = sorted(self._terms_folder.glob("*.json"), key=lambda file: int(file.stem))
        return {int(file.stem): Terms.model_validate_json(file.read_text(encoding="utf-8")) for file in files}

    def _file(self, batch_id: int) -> Path:
        return self._folder / f"{batch_id:09d}.json"

    def _terms_file(self, batch_id: int) -> Path:
        return self._terms_folder / f"{batch_id:09d}.json"

    def _terms_text(self, batch_id: int) -> str | None:
        """The terms in force at a batch, as they are written; None where none are."""
        files = self._terms_folder.glob("*.json")
        first = max((int(file.stem) for file in files if int(file.stem) <= batch_id), default=None)
        return None if first is None else self._terms_file(first).read_text(encoding="utf-8")


def _arrived(written: dict[str, Any]) -> Stretches:
    if "arrived" in written:
        return tuple(Stretch(*each) for each in written["arrived"])
    # Earlier releases wrote only the greatest event time.
    clock_ms = written["clock_ms"]
    return () if clock_ms is None else (Stretch(clock_ms, clock_ms),)

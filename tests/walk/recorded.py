"""What a job has recorded of the batches that Spark will not run again: their files, rules, terms and lists."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.checkpoint.terms import Terms
from buckets.events.source_files import plain_path
from buckets.lists.lists import Lists
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class RecordedBatch:
    """A batch.

    Attributes:
        number: of the batch.
        files: what it has read, in the order of their names.
        rule_set: its rules.
        terms: what else decides its results.
        lists: by name, the lists that it sees.
        list_versions: by name, their versions.
    """

    number: int
    files: tuple[Path, ...]
    rule_set: RuleSet
    terms: Terms
    lists: Lists
    list_versions: Mapping[str, int]


class Records:
    """The batches of a checkpoint, each read once, soon after it was done: a job forgets after some hundreds."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._spark = spark_folder(checkpoint)
        self._taken = 0
        self._next = 0

    def committed(self) -> set[int]:
        """The batches that Spark will not run again."""
        return {int(path.name) for path in (self._spark / "commits").glob("[0-9]*")}

    def scored_files(self) -> int:
        """How many files lie in committed batches."""
        done = max(self.committed(), default=None)
        return 0 if done is None else len(self._files_until(self._offset(done)))

    def new(self) -> list[RecordedBatch]:
        """The committed batches that have not been asked for yet."""
        versions, records, lists = (
            RuleVersions(self._checkpoint),
            BatchRecords(self._checkpoint),
            ListVersions(self._checkpoint),
        )
        found = []
        for number in range(self._next, max(self.committed(), default=-1) + 1):
            record, files = records.record(number), self._files_until(self._offset(number))
            assert record is not None
            assert record.done
            of_batch = {name: lists.index(name, version) for name, version in record.lists.items()}
            terms = Terms.model_validate_json((self._terms_of(number)).read_text(encoding="utf-8"))
            mine = tuple(sorted(files[self._taken :]))
            found.append(
                RecordedBatch(number, mine, versions.rule_set(record.ruleset_version), terms, of_batch, record.lists)
            )
            self._taken, self._next = len(files), number + 1
        return found

    def _terms_of(self, number: int) -> Path:
        files = (self._checkpoint / "buckets" / "terms").glob("*.json")
        return max((file for file in files if int(file.stem) <= number), key=lambda file: int(file.stem))

    def _offset(self, number: int) -> int:
        """How far the source's own log had come with a batch."""
        last = (self._spark / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[-1]
        return int(json.loads(last)["logOffset"])

    def _files_until(self, offset: int) -> list[Path]:
        """The files of the source's log up to an offset, in the order in which they were taken."""
        found: dict[str, int] = {}
        for log in sorted(
            (self._spark / "sources" / "0").glob("[0-9]*"), key=lambda each: int(each.name.split(".")[0])
        ):
            for line in log.read_text(encoding="utf-8").splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] <= offset:
                    found[plain_path(entry["path"])] = entry["batchId"]
        return [Path(path) for path, _ in sorted(found.items(), key=lambda each: each[1])]

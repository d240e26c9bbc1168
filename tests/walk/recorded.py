"""What a job has recorded of the batches that Spark will not run again: their files, rules, terms and lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.checkpoint.source_offsets import spark_folder
from buckets.lists.index import Lists
from buckets.rules.rule_set import RuleSet
from tests.walk.source import Line, Source


@dataclass(frozen=True)
class RecordedBatch:
    """A batch.

    Attributes:
        number: of the batch.
        lines: what it has read, in the order of arrival.
        rule_set: its rules.
        terms: what else decides its results.
        lists: by name, the lists that it sees.
        list_versions: by name, their versions.
    """

    number: int
    lines: tuple[Line, ...]
    rule_set: RuleSet
    terms: Terms
    lists: Lists
    list_versions: Mapping[str, int]


class Records:
    """The batches of a checkpoint, each read once, soon after it was done: a job forgets after some hundreds."""

    def __init__(self, checkpoint: Path, source: Source) -> None:
        self.checkpoint, self._source = checkpoint, source
        self._spark = spark_folder(checkpoint)
        self._before: str | None = None
        self._next = 0

    def go_on_in(self, checkpoint: Path) -> None:
        """Look at another checkpoint, into which the state of the job has been carried over."""
        self.checkpoint, self._spark = checkpoint, spark_folder(checkpoint)

    def backfilled(self) -> dict[str, int]:
        """The rules whose history has been filled in, and the first batch for which it was."""
        versions = RuleVersions(self.checkpoint).history()
        made = ((version.first_batch, change) for version in versions for change in version.changes)
        return {change.rule_id: batch for batch, change in made if change.change == "backfilled"}

    def committed(self) -> set[int]:
        """The batches that Spark will not run again."""
        return {int(path.name) for path in (self._spark / "commits").glob("[0-9]*")}

    def scored(self) -> int:
        """How many files, or messages, lie in committed batches."""
        done = max(self.committed(), default=None)
        return 0 if done is None else self._source.scored(self._offset(done))

    def new(self) -> list[RecordedBatch]:
        """The committed batches that have not been asked for yet."""
        versions, records = RuleVersions(self.checkpoint), BatchRecords(self.checkpoint)
        lists, all_terms = ListVersions(self.checkpoint), records.all_terms()
        found = []
        for number in range(self._next, max(self.committed(), default=-1) + 1):
            record, offset = records.record(number), self._offset(number)
            assert record is not None
            assert record.done
            seen = {name: lists.index(name, version) for name, version in record.lists.items()}
            terms = all_terms[max(first for first in all_terms if first <= number)]
            rule_set = versions.rule_set(record.ruleset_version)
            lines = tuple(self._source.lines(self._before, offset))
            found.append(RecordedBatch(number, lines, rule_set, terms, seen, record.lists))
            self._before, self._next = offset, number + 1
        return found

    def _offset(self, number: int) -> str:
        """How far the source had been read with a batch, as Spark writes it."""
        return (self._spark / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[-1]

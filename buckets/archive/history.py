"""The history of a job: its archive, what each batch was scored with, and events looked up in it.

A batch was scored with rules, lists and settings under the field names of its time.
"""

import copy
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from buckets.archive.archive import Archive
from buckets.archive.archive_writer import ARCHIVE
from buckets.archive.arrived_rows import ARRIVAL, FAULT
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import PinnedLists
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.engine import EngineSettings
from buckets.config.job import Job
from buckets.delta.whole_table import in_ms, is_in, last_number, quoted_column
from buckets.errors import BucketsError
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.filter import renamed_filter
from buckets.rules.renaming import Names, renamed_rules
from buckets.rules.role import renamed_field
from buckets.stores.location import location
from buckets.verdicts.confirmed import FindEvents


def _renamed_engine(engine: EngineSettings, names: Names) -> EngineSettings:
    """Return settings whose precision of groups uses the given field names."""
    groups = tuple(
        group.model_copy(
            update={
                "group_by": tuple(renamed_field(field, names) for field in group.group_by),
                "where": renamed_filter(group.where, names),
            }
        )
        for group in engine.precision.groups
    )
    return engine.model_copy(update={"precision": engine.precision.model_copy(update={"groups": groups})})


class RecordedBatches:
    """A checkpoint's permanent records.

    Attributes:
        cuts: the ends of the written batches, by number.
        before: the last batch before them, which was not archived; None if there is none.
        after: the number of the last batch, if the archive ends before it; otherwise None.
        rule_set: returns a version of the rules.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = Checkpoint(checkpoint)
        self.cuts = self._checkpoint.cuts.read()
        self.before: BatchEnd | None = None
        self.after: int | None = None
        if not self.cuts:
            message = f"checkpoint {checkpoint} has no record of a batch yet; let the job score a first one"
            raise BucketsError(message)
        terms = self._checkpoint.batches.all_terms()
        self._terms_from, self._terms = list(terms), list(terms.values())
        self._names: Names = {}
        self.rule_set = self._as_written = lru_cache(maxsize=64)(self._checkpoint.versions.rule_set)
        self._lists = lru_cache(maxsize=8)(lambda versions: PinnedLists(self._checkpoint.lists, dict(versions)))

    def __reduce__(self) -> tuple[Callable[..., "RecordedBatches"], tuple[Path, Names]]:
        """Pickle as the location of the records, which are read again there."""
        return _read_again, (self._checkpoint.path, self._names)

    def __copy__(self) -> "RecordedBatches":
        """Share the records instead of reading them again."""
        copied = object.__new__(RecordedBatches)
        vars(copied).update(vars(self))
        return copied

    def since(self, batch_id: int | None) -> "RecordedBatches":
        """Return the records from a batch on; None for all of them."""
        if batch_id is None or batch_id <= self.cuts[0].batch_id:
            return self
        later = copy.copy(self)
        later.cuts = [cut for cut in self.cuts if cut.batch_id >= batch_id]
        later.before = next(cut for cut in reversed(self.cuts) if cut.batch_id < batch_id)
        return later

    def until(self, batch_id: int) -> "RecordedBatches":
        """Return the records up to the batch with which the archive ends."""
        earlier = copy.copy(self)
        earlier.after = self.cuts[-1].batch_id if self.cuts[-1].batch_id > batch_id else None
        earlier.cuts = [cut for cut in self.cuts if cut.batch_id <= batch_id]
        return earlier

    def under(self, names: Names) -> "RecordedBatches":
        """Return the records with the same field names for all batches: each name, or what `names` maps it to."""
        renamed = copy.copy(self)
        renamed._names = names
        renamed.rule_set = lru_cache(maxsize=64)(lambda version: renamed_rules(self._as_written(version), names))
        return renamed

    def terms(self, batch_id: int) -> Terms:
        """Return the terms of a batch."""
        index = bisect_right(self._terms_from, batch_id) - 1
        if index < 0:
            message = (
                f"checkpoint {self._checkpoint.path} has no record of the terms of batch {batch_id}; restore "
                "buckets/terms from a copy of it"
            )
            raise BucketsError(message)
        terms, names = self._terms[index], self._names
        if not names:
            return terms
        schema, engine = terms.event_schema.renamed(names), _renamed_engine(terms.engine, names)
        return terms.model_copy(update={"event_schema": schema, "engine": engine})

    def lists(self, cut: BatchEnd) -> Lists:
        """Return the lists as a batch saw them; the same object while they do not change."""
        return self._lists(tuple(cut.lists.items())) if cut.lists else NO_LISTS


def _read_again(checkpoint: Path, names: Names) -> RecordedBatches:
    recorded = RecordedBatches(checkpoint)
    return recorded.under(names) if names else recorded


def archive_of(job: Job) -> Archive:
    """Return the archive of a job."""
    if job.settings.archive is None:
        message = (
            "the configuration has no `archive`, which says where all that has arrived is kept; "
            "add `archive: {path: archive}`"
        )
        raise BucketsError(message)
    return Archive(location(job.settings.archive.path))


@dataclass(frozen=True)
class History:
    """The history of a job, up to some batch."""

    job: Job  # the job
    archive: Archive  # what has arrived
    recorded: RecordedBatches  # the records of the batches that are archived

    @staticmethod
    def open(job: Job) -> "History":
        """Open the history of a job, which may be running, up to its last written batch."""
        archive, checkpoint = archive_of(job), Checkpoint(job.checkpoint)
        recorded = RecordedBatches(job.checkpoint)
        identity = checkpoint.job.known_identity()
        OwnedFolder(archive.folder, "archive.path", checkpoint.job.life).is_of(identity)
        first, last = archive.since() if archive.exists() else None, recorded.cuts[-1].batch_id
        if not archive.exists() or (first is not None and first > last):
            message = (
                f"archive {archive.folder}: holds nothing yet; it begins with the next batch of the job, which has to "
                "be started with this configuration"
            )
            raise BucketsError(message)
        ended, recorded = last_number(archive.table_path, f"{identity}-{ARCHIVE}"), recorded.since(first)
        recorded = recorded if ended is None else recorded.until(ended)
        return History(job, replace(archive, until=last), recorded)


def archived_events(job: Job) -> FindEvents | None:
    """Return a function that looks up events in a job's archive; None if the job has none."""
    return None if job.settings.archive is None else partial(_look_up, job)


def _look_up(job: Job, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the events with some ids, each as it first arrived: its time in ms, and its other fields."""
    schema = job.event_schema
    archive = archive_of(job).under(schema.new_names)
    if not archive.exists():
        return {}
    fields, there = schema.other_fields, archive.columns()
    columns = [schema.event_id, schema.event_time.field, *(name for name in fields if name in there)]
    quoted = ", ".join(quoted_column(name) for name in columns)
    rows = archive.query(
        f"select {quoted} from archive where {is_in(schema.event_id, event_ids)} "
        f"and {quoted_column(FAULT)} is null order by {quoted_column(ARRIVAL)}"
    )
    events: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for row in in_ms(rows).to_pylist():
        others = {name: row[name] for name in fields if row.get(name) is not None}
        events.setdefault(str(row[schema.event_id]), (row[schema.event_time.field], others))
    return events

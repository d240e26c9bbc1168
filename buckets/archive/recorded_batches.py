"""What each batch of a job was scored with: rules, lists and settings, under the names that fields had then."""

import copy
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import PinnedLists
from buckets.config.engine import EngineSettings
from buckets.delta.whole_table import quoted_column
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.renaming import Names, renamed_filter, renamed_rules
from buckets.rules.rule_set import RuleSet


class Renaming(NamedTuple):
    """An import with other names: the last batch before it, and the new names."""

    batch_id: int
    names: Names


@dataclass(frozen=True)
class FieldNames:
    """The names of fields after each renaming, the first one first, and the epoch whose names are used."""

    renamings: tuple[Renaming, ...] = ()
    epoch: int = 0

    @classmethod
    def of(cls, checkpoint: Path) -> "FieldNames":
        """Return those of a checkpoint, by the names that fields have now."""
        imports = Checkpoint(checkpoint).imports.read()
        renamings = tuple(Renaming(made.batch_id, made.names) for made in imports if made.names)
        return cls(renamings, len(renamings))

    def as_of(self, batch_id: int) -> "FieldNames":
        """Return the same by the names of a batch."""
        return replace(self, epoch=self.epoch_of(batch_id))

    def epoch_of(self, batch_id: int) -> int:
        """Return the epoch of a batch."""
        return sum(renaming.batch_id < batch_id for renaming in self.renamings)

    def name_in(self, epoch: int, field: str) -> str | None:
        """Return what a field is called in an epoch; None where there was no such field then."""
        name: str | None = field
        for names in self._steps(self.epoch, epoch):
            if name is not None:
                name = names.get(name) or (None if name in names.values() else name)
        return name

    def view(self, columns: pa.Schema, own: Sequence[str], batch: str) -> str:
        """Return a query that gives the rows of the table `arrivals` under the names that are used.

        `own` are those of its columns that are no fields; `batch` is the one that says in which batch a row is.
        """
        ends = [renaming.batch_id for renaming in self.renamings]
        parts = []
        for epoch, (first, last) in enumerate(zip([None, *ends], [*ends, None], strict=True)):
            chosen = [*map(quoted_column, own)]
            for name in (name for name in columns.names if name not in own):
                there, quoted = self.name_in(epoch, name), quoted_column(name)
                is_there = there is not None and there in columns.names
                column = quoted_column(there) if there and is_there else f"case when false then {quoted} end"
                chosen.append(f"{column} as {quoted}")
            tests = [] if first is None else [f"{batch} > {first}"]
            tests += [] if last is None else [f"{batch} <= {last}"]
            parts.append(f"select {', '.join(chosen)} from arrivals where {' and '.join(tests)}")
        return " union all ".join(parts)

    def rule_set(self, rule_set: RuleSet, epoch: int) -> RuleSet:
        """Return a rule set of an epoch under the names that are used; without its fills where names differ."""
        for names in self._steps(epoch, self.epoch):
            rule_set = renamed_rules(rule_set, names, rule_set.version).rule_set
        return rule_set

    def terms(self, terms: Terms, epoch: int) -> Terms:
        """Return terms of an epoch under the names that are used."""
        for names in self._steps(epoch, self.epoch):
            schema, engine = renamed_schema(terms.event_schema, names), _renamed_engine(terms.engine, names)
            terms = terms.model_copy(update={"event_schema": schema, "engine": engine})
        return terms

    def _steps(self, start: int, end: int) -> list[Names]:
        """Return the new names from one epoch to another, earlier or later, one renaming after the other."""
        if start <= end:
            return [renaming.names for renaming in self.renamings[start:end]]
        back = reversed(self.renamings[end:start])
        return [{new: old for old, new in renaming.names.items()} for renaming in back]

    @cached_property
    def is_plain(self) -> bool:
        """Whether no field ever had another name."""
        return not self.renamings


def renamed_schema(schema: EventSchema, names: Names) -> EventSchema:
    """Return an event schema in which fields have other names."""
    time = schema.event_time
    return schema.model_copy(
        update={
            "identity": schema.identity.renamed(names),
            "event_time": time.model_copy(update={"field": names.get(time.field, time.field)}),
            "attributes": {names.get(name, name): kind for name, kind in schema.attributes.items()},
            "measures": {names.get(name, name): measure for name, measure in schema.measures.items()},
            "arrays": {names.get(name, name): kind for name, kind in schema.arrays.items()},
            "csv": schema.csv.renamed(names),
        }
    )


def _renamed_engine(engine: EngineSettings, names: Names) -> EngineSettings:
    """Return settings whose precision of groups names their fields."""
    groups = tuple(
        group.model_copy(
            update={
                "group_by": tuple(names.get(field, field) for field in group.group_by),
                "where": renamed_filter(group.where, names),
            }
        )
        for group in engine.precision.groups
    )
    return engine.model_copy(update={"precision": engine.precision.model_copy(update={"groups": groups})})


class RecordedBatches:
    """The records of a checkpoint, for good.

    Attributes:
        cuts: of the batches that are written, by number.
        before: the last batch before them, which could not be archived; None where there is none.
    """

    def __init__(self, checkpoint: Path) -> None:
        """Read the cuts of a checkpoint."""
        self._checkpoint = Checkpoint(checkpoint)
        self.cuts = self._checkpoint.cuts.read()
        self.before: BatchEnd | None = None
        if not self.cuts:
            message = f"checkpoint {checkpoint} has no record of a batch yet; let the job score a first one"
            raise BucketsError(message)
        terms = self._checkpoint.batches.all_terms()
        self._terms_from, self._terms = list(terms), list(terms.values())
        self._names: FieldNames | None = None
        self._rule_set = self._as_written = lru_cache(maxsize=64)(self._checkpoint.versions.rule_set)

    def since(self, batch_id: int | None) -> "RecordedBatches":
        """Return the records from a batch on; None for all of them."""
        if batch_id is None or batch_id <= self.cuts[0].batch_id:
            return self
        later = copy.copy(self)
        later.cuts = [cut for cut in self.cuts if cut.batch_id >= batch_id]
        later.before = next(cut for cut in reversed(self.cuts) if cut.batch_id < batch_id)
        return later

    def under(self, names: FieldNames) -> "RecordedBatches":
        """Return the same where all batches name fields alike, whatever they were called in each."""
        renamed = copy.copy(self)
        renamed._names = names
        renamed._rule_set = lru_cache(maxsize=64)(renamed._renamed)
        return renamed

    def rule_set(self, version: int) -> RuleSet:
        """Return a version of the rules."""
        return self._rule_set(version)

    def _renamed(self, version: int) -> RuleSet:
        """Return a version of the rules under the names that are used."""
        assert self._names is not None
        batches = [cut.batch_id for cut in self.cuts]
        ends = [max(bisect_right(batches, renaming.batch_id) - 1, 0) for renaming in self._names.renamings]
        epoch = sum(self.cuts[end].ruleset_version < version for end in ends)
        return self._names.rule_set(self._as_written(version), epoch)

    def terms(self, batch_id: int) -> Terms:
        """Return the terms of a batch."""
        index = bisect_right(self._terms_from, batch_id) - 1
        if index < 0:
            message = (
                f"checkpoint {self._checkpoint.path} has no record of the terms of batch {batch_id}; restore "
                "buckets/terms from a copy of it"
            )
            raise BucketsError(message)
        terms = self._terms[index]
        return terms if self._names is None else self._names.terms(terms, self._names.epoch_of(batch_id))

    def schemas(self) -> Mapping[int, EventSchema]:
        """Return by batch the event schema that its arrivals were read by."""
        return {cut.batch_id: self.terms(cut.batch_id).event_schema for cut in self.cuts}

    def lists(self, cut: BatchEnd) -> Lists:
        """Return the lists as a batch saw them."""
        return PinnedLists(self._checkpoint.lists, cut.lists) if cut.lists else NO_LISTS

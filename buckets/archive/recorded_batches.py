"""What each batch of a job was scored with: rules, lists and settings, as its checkpoint has recorded them."""

import copy
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from buckets.archive.field_names import FieldNames
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.cuts import UNKNOWN, Cut
from buckets.checkpoint.list_versions import PinnedLists
from buckets.checkpoint.terms import Terms
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.lists.lists import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet


class RecordedBatches:
    """The records of a checkpoint, for good.

    Attributes:
        cuts: of the batches that are written, by number, without those of earlier releases.
        before: the last batch before them: of an earlier release, which wrote no cuts, or before the first one that
            could be archived; None where there is none.
    """

    def __init__(self, checkpoint: Path) -> None:
        """Read the cuts of a checkpoint.

        Raises:
            BucketsError: there are none.
        """
        self._checkpoint = Checkpoint(checkpoint)
        cuts = self._checkpoint.cuts.read()
        self.cuts = [cut for cut in cuts if cut.ruleset_version != UNKNOWN]
        self.before = next((cut for cut in cuts if cut.ruleset_version == UNKNOWN), None)
        if not self.cuts:
            message = (
                f"checkpoint {checkpoint} has no record of a batch of this release yet; let the job score a first one"
            )
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

    def lists(self, cut: Cut) -> Lists:
        """Return the lists as a batch saw them."""
        return PinnedLists(self._checkpoint.lists, cut.lists) if cut.lists else NO_LISTS

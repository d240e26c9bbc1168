"""What each batch of a job was scored with: rules, lists and settings, as its checkpoint has recorded them."""

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


class Recorded:
    """The records of a checkpoint, for good.

    Attributes:
        cuts: of the batches that are written, by number, without those of earlier releases.
        before: the last batch of an earlier release, which wrote no cuts; None where there is none.
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
                f"checkpoint {checkpoint} has no record of where the stream was cut into batches; run the job with "
                "this release first"
            )
            raise BucketsError(message)
        terms = self._checkpoint.batches.all_terms()
        self._terms_from, self._terms = list(terms), list(terms.values())
        self._rule_set = lru_cache(maxsize=64)(self._checkpoint.versions.rule_set)

    def rule_set(self, version: int) -> RuleSet:
        """A version of the rules."""
        return self._rule_set(version)

    def under(self, names: FieldNames) -> "Recorded":
        """Return the same under other names of fields than those of each batch."""
        return RenamedRecords(self, names)

    def terms(self, batch_id: int) -> Terms:
        """The terms of a batch."""
        index = bisect_right(self._terms_from, batch_id) - 1
        if index < 0:
            message = (
                f"checkpoint {self._checkpoint.path} has no record of the terms of batch {batch_id}; restore "
                "buckets/terms from a copy of it"
            )
            raise BucketsError(message)
        return self._terms[index]

    def schemas(self) -> Mapping[int, EventSchema]:
        """By batch, the event schema that its arrivals were read by."""
        return {cut.batch_id: self.terms(cut.batch_id).event_schema for cut in self.cuts}

    def lists(self, cut: Cut) -> Lists:
        """The lists as a batch saw them."""
        return PinnedLists(self._checkpoint.lists, cut.lists) if cut.lists else NO_LISTS


class RenamedRecords(Recorded):
    """The records of a checkpoint, where all batches name fields alike."""

    def __init__(self, recorded: Recorded, names: FieldNames) -> None:
        """Take records as they are, and the names that are used."""
        self.__dict__ |= vars(recorded)
        self._recorded, self._names = recorded, names
        batches = [cut.batch_id for cut in self.cuts]
        ends = [max(bisect_right(batches, each.batch_id) - 1, 0) for each in names.renamings]
        self._last_versions = [self.cuts[end].ruleset_version for end in ends]
        self._rule_set = lru_cache(maxsize=64)(self._renamed)

    def under(self, names: FieldNames) -> Recorded:
        """Return the same under other names."""
        return RenamedRecords(self._recorded, names)

    def _renamed(self, version: int) -> RuleSet:
        epoch = sum(last < version for last in self._last_versions)
        return self._names.rule_set(self._recorded.rule_set(version), epoch)

    def terms(self, batch_id: int) -> Terms:
        """The terms of a batch."""
        return self._names.terms(self._recorded.terms(batch_id), self._names.epoch_of(batch_id))

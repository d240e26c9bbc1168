"""The batches of a job, as its checkpoint tells of them while it runs: where each ends, and what it is scored by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import lists_in
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.checkpoint.topic_generations import TopicGenerations, generation_name
from buckets.engine.results.feature_table import FeatureTable
from buckets.engine.stages.in_memory import OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.engine.stages.shard_plans import ShardPlans, shard_plans
from buckets.lists.index import Lists
from buckets.outputs.messages import Messages
from buckets.rules.rule_set import RuleSet

Place = tuple[int, str]  # Partition and topic: so a job orders what arrives in one batch
Offsets = Mapping[Place, int]


@dataclass(frozen=True)
class ScoredBy:
    """What payments are scored by; two that are equal give the same results."""

    checkpoint: Path
    rules: int  # the version of the rules
    lists: tuple[tuple[str, int], ...]  # the version of each list
    first_batch: int  # of the terms

    @cached_property
    def terms(self) -> Terms:
        """The event schema and the settings, for one shard that has all keys."""
        terms = Checkpoint(self.checkpoint).batches.terms_from(self.first_batch)
        return terms.model_copy(update={"engine": terms.engine.model_copy(update={"shards": 1})})

    @cached_property
    def job_rules(self) -> RuleSet:
        """The rules, as the job has them."""
        return Checkpoint(self.checkpoint).versions.rule_set(self.rules)

    @cached_property
    def rule_set(self) -> RuleSet:
        """The rules; what the job fills in beside its timelines comes with its state, once it is whole."""
        return replace(self.job_rules, fills=(), fills_begun=0)

    @cached_property
    def scorer(self) -> Scorer:
        """What scores; nobody asks for the accounts of batches."""
        return Scorer(self.terms.event_schema, self.terms.engine, False, self._lists, counts=False)

    @cached_property
    def decoder(self) -> OutputDecoder:
        """What decodes results."""
        return OutputDecoder(self.rule_set, self.terms.event_schema, self.terms.engine)

    @cached_property
    def messages(self) -> Messages:
        """What shows alerts as they are published."""
        return Messages(self.rule_set, self.terms.event_schema)

    @cached_property
    def features(self) -> FeatureTable:
        """What makes columns of features."""
        return FeatureTable(self.rule_set, self.terms.event_schema, flags=True, refuses_others=False)

    @cached_property
    def _lists(self) -> Lists:
        return lists_in(self.checkpoint, dict(self.lists))

    @cached_property
    def plans(self) -> ShardPlans:
        """The plans of the groups."""
        return shard_plans(self.rule_set, self.terms.event_schema, self.terms.engine)

    def prepare(self) -> None:
        """Read and plan all that scoring needs."""
        _ = self.plans, self.scorer, self.messages, self.decoder

    def takes_over_fill(self, before: "ScoredBy") -> bool:
        """Return whether timelines are in force that the job has filled in, and that are in its state alone."""
        filled = {fill.timelines for fill in before.job_rules.fills}
        return any(group.state_id in filled for group in self.job_rules.groups)


@dataclass(frozen=True)
class JobBatch:
    """A batch of the job that has begun, or has ended."""

    number: int
    end: Offsets  # by partition, the offset after its last message
    scored_by: ScoredBy
    names: Mapping[str, str] = field(default_factory=dict)  # by topic, its name in results, which says its generation

    def has(self, place: Place, offset: int) -> bool:
        """Return whether a message is in it, or in one before."""
        return offset < self.end.get(place, 0)


class JobBatches:
    """Follows the batches of a checkpoint; nothing is written."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._offsets = SourceOffsets(checkpoint)
        self._kept = lru_cache(maxsize=4)(ScoredBy)  # So that what is in force is read and planned once

    def ended(self) -> JobBatch | None:
        """Return the last batch that has ended; None where none has."""
        number = self._offsets.ended
        return None if number is None else self.batch(number)

    def after(self, number: int) -> Iterator[JobBatch]:
        """Yield the batches after one that have begun."""
        while (batch := self.batch(number + 1)) is not None:
            yield batch
            number += 1

    def are_others(self, number: int) -> bool:
        """Return whether batches go on otherwise than after one that has begun: it is passed over, or another job's."""
        ended = self._offsets.ended
        if ended is None or ended < number - 1:
            return True
        return ended > number and self.batch(number + 1) is None

    def batch(self, number: int) -> JobBatch | None:
        """Return a batch; None where it has not begun, or is not known any more."""
        record = Checkpoint(self.checkpoint).batches.record(number)
        if record is None or record.terms is None:
            return None
        try:
            ends = self._offsets.end(number)
        except FileNotFoundError:
            return None
        lists = tuple(sorted(record.lists.items()))
        end = {(int(at), topic): offset for topic, of_topic in ends.items() for at, offset in of_topic.items()}
        generations = TopicGenerations(self.checkpoint).numbers(ends)
        names = {topic: generation_name(topic, generation) for topic, generation in generations.items()}
        return JobBatch(number, end, self._kept(self.checkpoint, record.ruleset_version, lists, record.terms), names)

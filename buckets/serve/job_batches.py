"""The batches of a running job, from its checkpoint: the end offsets of each, and its rules, lists and settings."""

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

Place = tuple[int, str]  # Partition and topic, by which a job orders the messages of a batch
Offsets = Mapping[Place, int]


@dataclass(frozen=True)
class ScoredBy:
    """The rules, lists and settings that score payments; equal ones give equal results."""

    checkpoint: Path
    rules: int  # the version of the rules
    lists: tuple[tuple[str, int], ...]  # the version of each list
    first_batch: int  # of the terms

    @cached_property
    def terms(self) -> Terms:
        """The event schema and the settings, for one shard with all keys."""
        terms = Checkpoint(self.checkpoint).batches.terms_from(self.first_batch)
        return terms.model_copy(update={"engine": terms.engine.model_copy(update={"shards": 1})})

    @cached_property
    def job_rules(self) -> RuleSet:
        """The rules of the job."""
        return Checkpoint(self.checkpoint).versions.rule_set(self.rules)

    @cached_property
    def rule_set(self) -> RuleSet:
        """The rules; backfilled timelines come with the job's state once they are complete."""
        return replace(self.job_rules, fills=(), fills_begun=0)

    @cached_property
    def scorer(self) -> Scorer:
        """A scorer, without the accounts of batches."""
        return Scorer(self.terms.event_schema, self.terms.engine, False, self._lists, counts=False)

    @cached_property
    def decoder(self) -> OutputDecoder:
        """A decoder of results."""
        return OutputDecoder(self.rule_set, self.terms.event_schema, self.terms.engine)

    @cached_property
    def messages(self) -> Messages:
        """The writer of alerts in published form."""
        return Messages(self.rule_set, self.terms.event_schema)

    @cached_property
    def features(self) -> FeatureTable:
        """The writer of columns of features."""
        return FeatureTable(self.rule_set, self.terms.event_schema, flags=True, refuses_others=False)

    @cached_property
    def _lists(self) -> Lists:
        return lists_in(self.checkpoint, dict(self.lists))

    @cached_property
    def plans(self) -> ShardPlans:
        """The plans of the groups."""
        return shard_plans(self.rule_set, self.terms.event_schema, self.terms.engine)

    def prepare(self) -> None:
        """Read and plan everything that scoring needs."""
        _ = self.plans, self.scorer, self.messages, self.decoder

    def takes_over_fill(self, before: "ScoredBy") -> bool:
        """Return whether it uses timelines that the job has backfilled, which only the job's state contains."""
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
        """Return whether a message is in this or an earlier batch."""
        return offset < self.end.get(place, 0)


class JobBatches:
    """Follows the batches of a checkpoint, without writing to it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._offsets = SourceOffsets(checkpoint)
        self._kept = lru_cache(maxsize=4)(ScoredBy)  # So that rules are read and planned once

    def ended(self) -> JobBatch | None:
        """Return the last batch that has ended; None if none has."""
        number = self._offsets.ended
        return None if number is None else self.batch(number)

    def after(self, number: int) -> Iterator[JobBatch]:
        """Yield the batches after one that have begun."""
        while (batch := self.batch(number + 1)) is not None:
            yield batch
            number += 1

    def are_others(self, number: int) -> bool:
        """Return whether the batches no longer continue the given one: it was skipped, or belongs to another job."""
        ended = self._offsets.ended
        if ended is None or ended < number - 1:
            return True
        return ended > number and self.batch(number + 1) is None

    def batch(self, number: int) -> JobBatch | None:
        """Return a batch; None if it has not begun, or is no longer known."""
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

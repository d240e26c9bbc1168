"""The shards of a replay: in this process, or shared among processes, each of which keeps the timelines of its shards.

A process is given the messages of its shards as the payloads that they are, and gives back payloads. Settings and rules
are sent when they change, and lists of a checkpoint by their versions. A process does what it is sent in order.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from buckets.config.engine import EngineSettings
from buckets.engine.stages.filling import Feeds
from buckets.engine.stages.in_memory import memory_store
from buckets.engine.stages.shard import Produced, Scorer
from buckets.engine.storage.shard_store import ShardStore
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.lists.lists import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet

Messages = Mapping[int, Sequence[bytes]]
"""By shard, the payloads that it is sent."""
FeedsOf = Callable[[int], Feeds]
"""By shard, the history of what is being filled."""
Pending = Callable[[], Iterator[Produced]]
"""Waits for what shards put out."""


@dataclass
class ShardOwner:
    """Some shards, with their timelines in memory.

    Attributes:
        scorer: the settings of the batches that come next.
        rule_set: their rules.
        stores: by shard, its timelines.
    """

    scorer: Scorer | None = None
    rule_set: RuleSet | None = None
    stores: dict[int, ShardStore] = field(default_factory=dict)

    def score(self, messages: Mapping[int, tuple[Sequence[bytes], Feeds]]) -> list[Produced]:
        """Score a batch.

        Args:
            messages: by shard, the payloads that it is sent, and the history of what is being filled.
        """
        assert self.scorer is not None
        assert self.rule_set is not None
        found: list[Produced] = []
        for shard, (payloads, feeds) in messages.items():
            if shard not in self.stores:
                self.stores[shard] = memory_store()
            found += self.scorer.score(payloads, self.rule_set, self.stores[shard], feeds)
        return found


class Shards(Protocol):
    """All shards of a job."""

    def use(self, scorer: Scorer, rule_set: RuleSet) -> None:
        """Score what comes next under these settings and rules."""

    def score(self, messages: Messages, feeds_of: FeedsOf) -> Pending:
        """Begin to score a batch, after those before it."""


class OwnShards:
    """The shards in this process."""

    def __init__(self) -> None:
        """Begin with empty timelines."""
        self._owner = ShardOwner()

    def __enter__(self) -> "OwnShards":
        """Nothing has to be started."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be ended."""

    def use(self, scorer: Scorer, rule_set: RuleSet) -> None:
        """Score what comes next under these settings and rules."""
        self._owner.scorer, self._owner.rule_set = scorer, rule_set

    def score(self, messages: Messages, feeds_of: FeedsOf) -> Pending:
        """Score a batch at once."""
        found = self._owner.score({shard: (payloads, feeds_of(shard)) for shard, payloads in messages.items()})
        return lambda: iter(found)


class ShardProcesses:
    """The shards in processes."""

    def __init__(self, processes: int) -> None:
        """Start processes.

        Args:
            processes: how many.
        """
        fresh = multiprocessing.get_context("spawn")
        self._processes = [ProcessPoolExecutor(1, mp_context=fresh) for _ in range(processes)]
        self._rules: str | None = None
        self._used: list[Future[None]] = []

    def __enter__(self) -> "ShardProcesses":
        """Keep them until the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them, without what has not begun."""
        for process in self._processes:
            process.shutdown(wait=True, cancel_futures=True)

    def use(self, scorer: Scorer, rule_set: RuleSet) -> None:
        """Score what comes next under these settings and rules."""
        lists = scorer.lists if scorer.lists is not NO_LISTS else None
        rules = rule_set.to_json() if rule_set.to_json() != self._rules else None
        self._rules = rule_set.to_json()
        settings = scorer.schema, scorer.engine, scorer.evaluations, lists
        self._used = [process.submit(_use, *settings, rules) for process in self._processes]

    def score(self, messages: Messages, feeds_of: FeedsOf) -> Pending:
        """Begin to score a batch; a shard always goes to the same process."""
        shares: list[dict[int, tuple[Sequence[bytes], Feeds]]] = [{} for _ in self._processes]
        for shard, payloads in messages.items():
            shares[shard % len(shares)][shard] = payloads, dict(feeds_of(shard))
        begun = [process.submit(_score, share) for process, share in zip(self._processes, shares, strict=True) if share]
        used = self._used
        return lambda: _results(used, begun)


def _results(used: Sequence[Future[None]], begun: Sequence[Future[list[Produced]]]) -> Iterator[Produced]:
    """What shards put out, once they have taken their settings."""
    try:
        for settings in used:
            settings.result()
        for each in begun:
            yield from each.result()
    except BrokenProcessPool:
        message = "a process that scores shards has ended, most likely for want of memory: all timelines are kept in it"
        raise BucketsError(message) from None


_owner = ShardOwner()
"""The shards of this process, where it is one of several."""


def _use(
    schema: EventSchema, engine: EngineSettings, evaluations: bool, lists: Lists | None, rules: str | None
) -> None:
    """Take settings, and rules where they are others than before."""
    _owner.scorer = Scorer(schema, engine, evaluations, NO_LISTS if lists is None else lists)
    if rules is not None:
        _owner.rule_set = RuleSet.from_json(rules)


def _score(messages: Mapping[int, tuple[Sequence[bytes], Feeds]]) -> list[Produced]:
    return _owner.score(messages)

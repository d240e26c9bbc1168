"""A job whose shards are shared among processes, each of which keeps the timelines of its own.

A process is given the messages of its shards as the payloads that they are, and gives back payloads. Settings and rules
are sent when they change, and lists of a checkpoint by their versions. A process does what it is sent in order.
"""

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType

from buckets.config.engine import EngineSettings
from buckets.engine.stages.filling import FillSources
from buckets.engine.stages.in_memory import InMemoryJob, Pending, SourcesOf
from buckets.engine.stages.shard import Produced, Scorer
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet

_Share = Mapping[int, tuple[Sequence[bytes], FillSources]]
"""By shard, the payloads that it is sent, and the history of what is being filled."""


class ParallelJob(InMemoryJob):
    """A job in memory whose shards are in other processes."""

    def __init__(self, scorer: Scorer, processes: int) -> None:
        """Start processes; `scorer` has the settings of the first batch."""
        super().__init__(scorer)
        fresh = multiprocessing.get_context("spawn")
        self._processes = [ProcessPoolExecutor(1, mp_context=fresh) for _ in range(processes)]
        self._sent: tuple[Scorer, RuleSet] | None = None
        self._rules: str | None = None
        self._used: list[Future[None]] = []

    def __enter__(self) -> "ParallelJob":
        """Keep them until the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them, without what has not begun."""
        for process in self._processes:
            process.shutdown(wait=True, cancel_futures=True)

    def score_shards(
        self, messages: Mapping[int, Sequence[bytes]], rule_set: RuleSet, sources_of: SourcesOf
    ) -> Pending:
        """Begin to score what shards are sent; a shard always goes to the same process."""
        self._use(rule_set)
        shares: list[dict[int, tuple[Sequence[bytes], FillSources]]] = [{} for _ in self._processes]
        for shard, payloads in messages.items():
            shares[shard % len(shares)][shard] = payloads, dict(sources_of(shard))
        begun = [process.submit(_score, share) for process, share in zip(self._processes, shares, strict=True) if share]
        used = self._used
        return lambda: _results(used, begun)

    def _use(self, rule_set: RuleSet) -> None:
        """Send settings and rules, unless the batch before had the very same."""
        scorer = self.scorer
        if self._sent is not None and scorer is self._sent[0] and rule_set is self._sent[1]:
            return
        lists = scorer.lists if scorer.lists is not NO_LISTS else None
        text = rule_set.to_json()
        settings = scorer.schema, scorer.engine, scorer.evaluations, lists, None if text == self._rules else text
        self._sent, self._rules = (scorer, rule_set), text
        self._used = [process.submit(_take_settings, *settings) for process in self._processes]


def _results(used: Sequence[Future[None]], begun: Sequence[Future[list[Produced]]]) -> Iterator[Produced]:
    """Return what shards put out, once they have taken their settings."""
    try:
        for settings in used:
            settings.result()
        for share in begun:
            yield from share.result()
    except BrokenProcessPool:
        message = "a process that scores shards has ended, most likely for want of memory: all timelines are kept in it"
        raise BucketsError(message) from None


class _Own:
    """What a process has, where it is one of several: its shards, and the rules that they are scored by."""

    job: InMemoryJob | None = None
    rule_set: RuleSet | None = None


def _take_settings(
    schema: EventSchema, engine: EngineSettings, evaluations: bool, lists: Lists | None, rules: str | None
) -> None:
    """Take settings, and rules where they are others than before."""
    scorer = Scorer(schema, engine, evaluations, NO_LISTS if lists is None else lists)
    if _Own.job is None:
        _Own.job = InMemoryJob(scorer)
    _Own.job.scorer = scorer
    if rules is not None:
        _Own.rule_set = RuleSet.from_json(rules)


def _score(share: _Share) -> list[Produced]:
    assert _Own.job is not None
    assert _Own.rule_set is not None
    messages = {shard: payloads for shard, (payloads, _) in share.items()}
    return list(_Own.job.score_shards(messages, _Own.rule_set, lambda shard: share[shard][1])())

"""A generated stream: the transactions in arrival order, and the truth about what was planted in them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from buckets.generator.background import draw_background
from buckets.generator.case import Draft, PlantedCase
from buckets.generator.disorder import DisorderCounts, disorder
from buckets.generator.fraud import draw_cases
from buckets.generator.line import json_lines
from buckets.generator.malformed import MalformedLine, draw_malformed
from buckets.generator.population import draw_population
from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import Integers, Transactions, concatenate


@dataclass(frozen=True)
class Stream:
    """A generated stream: transactions in arrival order with repeated lines, broken lines, and planted cases."""

    settings: GeneratorSettings
    transactions: Transactions
    malformed: tuple[MalformedLine, ...]
    truth: tuple[PlantedCase, ...]
    counts: DisorderCounts

    @property
    def line_count(self) -> int:
        """Lines of the stream, broken ones included."""
        return len(self.transactions) + len(self.malformed)

    def json_lines(self) -> Iterator[str]:
        """Yield all lines in arrival order, broken ones included, without line ends."""
        done = 0
        lines = json_lines(self.transactions)
        for broken in self.malformed:
            for _ in range(broken.before_row - done):
                yield next(lines)
            done = broken.before_row
            yield broken.text
        yield from lines


def generate(settings: GeneratorSettings) -> Stream:
    """Draw a stream.

    Each step draws from its own random numbers, so that another rate of disorder leaves the transactions,
    their ids and the planted cases as they were.

    Complexity: O(n log n) in the number of transactions.
    """
    seeds = np.random.SeedSequence(settings.seed).spawn(5)
    people, everyday, planting, arriving, breaking = (np.random.default_rng(seed) for seed in seeds)
    population = draw_population(people, settings)
    background = draw_background(everyday, settings, population)
    drafts = draw_cases(planting, settings, population, background)
    events, case_of = _by_time(background, drafts)
    arrivals, counts = disorder(arriving, settings, events, case_of >= 0)
    broken = round(settings.malformed_rate * settings.transactions)
    return Stream(
        settings=settings,
        transactions=arrivals,
        malformed=draw_malformed(breaking, arrivals, broken, settings.transactions + counts.collisions),
        truth=_truth(drafts, events, case_of, settings.fraud_cases),
        counts=replace(counts, malformed=broken),
    )


def _by_time(background: Transactions, drafts: tuple[Draft, ...]) -> tuple[Transactions, Integers]:
    """Put all events in order, numbered from 0; and say for each the index of its draft, -1 where it is not planted.

    Planted events replace as many others, so that the stream has the length asked for.
    """
    planted = [draft.events for draft in drafts]
    everyday = background.take(slice(sum(len(events) for events in planted), None))
    lengths = [len(everyday), *(len(events) for events in planted)]
    case_of = np.repeat(np.arange(-1, len(drafts)), lengths)
    events = concatenate([everyday, *planted])
    order = np.argsort(events.event_time_ms, kind="stable")
    return replace(events.take(order), number=np.arange(len(order))), case_of[order]


def _truth(drafts: tuple[Draft, ...], events: Transactions, case_of: Integers, cases: int) -> tuple[PlantedCase, ...]:
    return tuple(
        draft.numbered(index % cases + 1, events.number[case_of == index]) for index, draft in enumerate(drafts)
    )

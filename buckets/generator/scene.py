"""What a pattern of fraud may look at when it plants a case: people, payments, random numbers."""

from dataclasses import dataclass

import numpy as np

from buckets.generator.cast import Cast
from buckets.generator.population import Population
from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import Integers, Transactions


@dataclass(frozen=True)
class Scene:
    """A stream in which cases are planted."""

    rng: np.random.Generator
    settings: GeneratorSettings
    population: Population
    background: Transactions
    cast: Cast

    def start_ms(self, span_ms: int) -> int:
        """Draw a time that leaves room for `span_ms` before the stream ends."""
        return int(self.rng.integers(self.settings.start_ms, self.settings.end_ms - span_ms))

    def card_of(self, payer: int) -> int:
        """Draw one of the payer's cards."""
        return int(self.population.draw_cards(self.rng, np.array([payer]))[0])

    def moments_ms(self, count: int, span_ms: int) -> Integers:
        """Draw that many different times in `[0, span_ms)`, ascending."""
        return np.sort(self.rng.choice(span_ms, size=count, replace=False))

    def shops(self, count: int) -> Integers:
        """Draw beneficiaries, by popularity, who have no part in a case."""
        weight = self.population.beneficiary_weight[self.cast.shops]
        return self.rng.choice(self.cast.shops, size=count, p=weight / weight.sum())

    def card_is_free(self, card: int, start_ms: int, end_ms: int) -> bool:
        """Return whether nothing is paid with the card in `[start_ms, end_ms)`."""
        time_ms = self.background.event_time_ms[self.background.card == card]
        return not bool(np.any((time_ms >= start_ms) & (time_ms < end_ms)))

"""Planted fraud: four patterns, each caught by an exact window and a rule of `conf/demo-rules.yaml`.

The limits below are those of the rules; a test holds the two together. Everyone with a part in a case has only that
part. Only card testing cannot help being, at the same time, five payments in five minutes.
"""

from dataclasses import dataclass

import numpy as np

from buckets.duration import HOUR_MS, MINUTE_MS
from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import (
    CARD,
    CASH,
    Draft,
    Integers,
    Population,
    Transactions,
    amount_text,
    beneficiary_id,
    card_id,
    payer_id,
)


@dataclass(frozen=True)
class Scene:
    """The stream in which cases are planted, and the people with parts in many of them."""

    rng: np.random.Generator
    settings: GeneratorSettings
    population: Population
    background: Transactions
    victims: Integers  # payers with no other part, who pay the mules
    bystanders: Integers  # beneficiaries with no other part, where stolen cards are used

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
        weight = self.population.beneficiary_weight[self.bystanders]
        return self.rng.choice(self.bystanders, size=count, p=weight / weight.sum())


def _quiet(rng: np.random.Generator, seen: Integers, count: int) -> Integers:
    activity = np.bincount(seen, minlength=count)
    return rng.permutation(np.flatnonzero(activity <= np.median(activity)))


STRUCTURING_LIMIT_CENTS = 20_000_000
CARD_TESTING_COUNT = 12
FAN_IN_LIMIT_CENTS = 5_000_000
_TRIES_FOR_A_FREE_CARD = 100


def draw_cases(
    rng: np.random.Generator, settings: GeneratorSettings, population: Population, background: Transactions
) -> tuple[Draft, ...]:
    """Plant `fraud_cases` of each pattern, pattern by pattern, in the order of `PATTERNS`."""
    # Parts are given to those who pay, or are paid, no more than the median.
    cases = settings.fraud_cases
    payers = _quiet(rng, background.payer, settings.payers)[: 3 * cases]
    beneficiaries = _quiet(rng, background.beneficiary, settings.beneficiaries)[: 2 * cases]
    structurers, testers, hurried = payers.reshape(3, cases).tolist()
    collectors, mules = beneficiaries.reshape(2, cases).tolist()
    victims = np.setdiff1d(np.arange(settings.payers), payers)
    bystanders = np.setdiff1d(np.arange(settings.beneficiaries), beneficiaries)
    scene = Scene(rng, settings, population, background, victims, bystanders)
    return (
        *(_structuring(scene, *pair) for pair in zip(structurers, collectors, strict=True)),
        *(_card_testing(scene, payer) for payer in testers),
        *(_mule_fan_in(scene, mule) for mule in mules),
        *(_five_in_five(scene, payer) for payer in hurried),
    )


def _structuring(scene: Scene, payer: int, beneficiary: int) -> Draft:
    """Split one sum above 200,000 into payments just under 10,000, spread over most of a day."""
    count = int(scene.rng.integers(23, 28))
    span_ms = int(scene.rng.integers(18 * HOUR_MS, 23 * HOUR_MS))
    gaps = scene.rng.uniform(0.6, 1.4, count - 1)
    offset_ms = np.concatenate([[0], np.cumsum(gaps) / gaps.sum() * span_ms]).astype(np.int64)
    cents = scene.rng.integers(900_000, 1_000_000, count)
    return Draft(
        pattern="structuring",
        rule_id="payer-to-beneficiary-24h",
        key={"payerId": payer_id(payer), "beneficiaryId": beneficiary_id(beneficiary)},
        events=_events(scene.start_ms(span_ms + 1) + offset_ms, payer, beneficiary, scene.card_of(payer), cents, CASH),
        detect=_first_above(cents, STRUCTURING_LIMIT_CENTS),
        description=(
            f"{count} payments from {payer_id(payer)} to {beneficiary_id(beneficiary)}, each from 9,000.00 "
            f"to 9,999.99, together {amount_text(int(cents.sum()))} in {span_ms / HOUR_MS:.1f} h"
        ),
    )


def _card_testing(scene: Scene, payer: int) -> Draft:
    """Try out a stolen card with tiny payments, a few seconds apart."""
    card = scene.card_of(payer)
    count = int(scene.rng.integers(CARD_TESTING_COUNT + 2, 23))
    span_ms = int(scene.rng.integers(3 * MINUTE_MS, 8 * MINUTE_MS))
    time_ms = scene.start_ms(span_ms) + scene.moments_ms(count, span_ms)
    cents = scene.rng.integers(50, 300, count)
    return Draft(
        pattern="card-testing",
        rule_id="card-testing-10m",
        key={"cardId": card_id(card)},
        events=_events(time_ms, payer, scene.shops(count), card, cents, CARD),
        detect=CARD_TESTING_COUNT - 1,
        description=f"{count} payments under 3.00 on {card_id(card)} in {span_ms / MINUTE_MS:.1f} min",
    )


def _mule_fan_in(scene: Scene, mule: int) -> Draft:
    """Let many payers send middling sums to one quiet account within a few hours."""
    count = int(scene.rng.integers(34, 46))
    span_ms = int(scene.rng.integers(2 * HOUR_MS, 5 * HOUR_MS))
    time_ms = scene.start_ms(span_ms) + scene.moments_ms(count, span_ms)
    payers = scene.rng.choice(scene.victims, size=count, replace=False)
    cents = scene.rng.integers(150, 460, count) * 1_000
    return Draft(
        pattern="mule-fan-in",
        rule_id="mule-fan-in-6h",
        key={"beneficiaryId": beneficiary_id(mule)},
        events=_events(time_ms, payers, mule, scene.population.draw_cards(scene.rng, payers), cents, CARD),
        detect=_first_above(cents, FAN_IN_LIMIT_CENTS),
        description=(
            f"{count} payers send {beneficiary_id(mule)} 1,500.00 to 4,590.00 each, together "
            f"{amount_text(int(cents.sum()))} in {span_ms / HOUR_MS:.1f} h"
        ),
    )


def _five_in_five(scene: Scene, payer: int) -> Draft:
    """Make five payments in less than five minutes that no window hopping by a minute contains.

    The first comes just before a minute ends, the fifth just under five minutes later. A window of five
    minutes that starts at a full minute and holds the first ends before the fifth:

        minute    |0        |1        |2        |3        |4        |5        |6
        payments           1   2      3             4                      5
        window 0  [----------------- holds 1 to 4 ------------------)
        window 1            [----------------- holds 2 to 5 ------------------)

    Source: Railgun (Oliveirinha et al., 2021), figure 1.
    """
    card = scene.card_of(payer)
    paid_ms = scene.background.event_time_ms[scene.background.card == card]
    for _ in range(_TRIES_FOR_A_FREE_CARD):
        minute_ms = (scene.start_ms(12 * MINUTE_MS) // MINUTE_MS + 6) * MINUTE_MS
        if not np.any((paid_ms >= minute_ms - 6 * MINUTE_MS) & (paid_ms < minute_ms + 11 * MINUTE_MS)):
            break
    first_ms = minute_ms - int(scene.rng.integers(200, 5_000))
    fifth_ms = first_ms + 5 * MINUTE_MS - int(scene.rng.integers(1_000, 15_000))
    between_ms = minute_ms + scene.moments_ms(3, 4 * MINUTE_MS - 20_000)
    cents = scene.rng.integers(2_000, 40_000, 5)
    time_ms = np.concatenate([[first_ms], between_ms, [fifth_ms]])
    return Draft(
        pattern="five-in-five",
        rule_id="card-five-in-five-minutes",
        key={"cardId": card_id(card)},
        events=_events(time_ms, payer, scene.shops(5), card, cents, CARD),
        detect=4,
        description=(
            f"five payments on {card_id(card)} in {(fifth_ms - first_ms) / 1000:.3f} s, which no five-minute "
            "window that hops by one minute holds together"
        ),
    )


def _first_above(cents: Integers, limit_cents: int) -> int:
    return int(np.argmax(np.cumsum(cents) > limit_cents))


def _events(
    time_ms: Integers,
    payer: Integers | int,
    beneficiary: Integers | int,
    card: Integers | int,
    cents: Integers,
    payment_type: int,
) -> Transactions:
    columns = (0, time_ms, payer, beneficiary, card, payment_type, cents)
    return Transactions(*(np.broadcast_to(np.asarray(value, np.int64), time_ms.shape) for value in columns))

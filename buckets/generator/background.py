"""Everyday payments, in which the planted cases hide.

Now and then someone pays several times in a row with one card, on a shopping street or at a fair: most sprees
are short, a rare long one is what sets off a card rule without any fraud.
"""

import numpy as np

from buckets.generator.population import Population
from buckets.generator.rent import draw_rents
from buckets.generator.rhythm import draw_times_ms
from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import CARD, CASH, Integers, Transactions, concatenate

_FAVOURITE_SHARE = 0.6
_SPREE_SHARE = 0.004
_SPREE_ENDS = 0.6
_LONGEST_SPREE = 12
_SPREE_GAP_MS = 90_000.0
_CASH_SHARE = 0.12
_CASH_STEP_CENTS = 500
_LARGEST_CENTS = 100_000_000
_SMALLEST_CENTS = 20


def draw_background(rng: np.random.Generator, settings: GeneratorSettings, population: Population) -> Transactions:
    """Draw all payments that are not planted, in no order; number 0 stands for no number yet."""
    rents = draw_rents(rng, settings, population)
    everyday = _draw_everyday(rng, settings, population, settings.transactions - len(rents))
    return concatenate([everyday, rents])


def _draw_everyday(
    rng: np.random.Generator, settings: GeneratorSettings, population: Population, count: int
) -> Transactions:
    leaders, followers_of, delay_ms = _draw_sprees(rng, count)
    payer = rng.choice(settings.payers, size=leaders, p=population.payer_weight)
    card = population.draw_cards(rng, payer)
    time_ms = draw_times_ms(rng, leaders, settings.start_ms, settings.end_ms)
    spree_ms = np.minimum(time_ms[followers_of] + delay_ms, settings.end_ms - 1)
    payer = np.concatenate([payer, payer[followers_of]])
    beneficiary = _draw_beneficiaries(rng, population, payer)
    payment_type = np.where(rng.random(count) < _CASH_SHARE, CASH, CARD)
    return Transactions(
        number=np.zeros(count, np.int64),
        event_time_ms=np.concatenate([time_ms, spree_ms]),
        payer=payer,
        beneficiary=beneficiary,
        card=np.concatenate([card, card[followers_of]]),
        payment_type=payment_type,
        amount_cents=_draw_amounts(rng, population, payer, beneficiary, payment_type),
    )


def _draw_sprees(rng: np.random.Generator, count: int) -> tuple[int, Integers, Integers]:
    """Return how many payments come by themselves; which of them each other payment follows, and how long after."""
    lengths = np.minimum(rng.geometric(_SPREE_ENDS, round(count * _SPREE_SHARE)), _LONGEST_SPREE)
    leaders = count - int(lengths.sum())
    first = rng.choice(leaders, size=len(lengths), replace=False)
    gap_ms = 1_000 + rng.exponential(_SPREE_GAP_MS, int(lengths.sum())).astype(np.int64)
    through_ms = np.cumsum(gap_ms)
    before_ms = np.concatenate([[0], through_ms])[np.cumsum(lengths) - lengths]
    return leaders, np.repeat(first, lengths), through_ms - np.repeat(before_ms, lengths)


def _draw_beneficiaries(rng: np.random.Generator, population: Population, payer: Integers) -> Integers:
    count = len(payer)
    anyone = rng.choice(len(population.beneficiary_weight), size=count, p=population.beneficiary_weight)
    favourite = population.favourites[payer, rng.integers(0, population.favourites.shape[1], count)]
    return np.where(rng.random(count) < _FAVOURITE_SHARE, favourite, anyone)


def _draw_amounts(
    rng: np.random.Generator,
    population: Population,
    payer: Integers,
    beneficiary: Integers,
    payment_type: Integers,
) -> Integers:
    """Draw amounts: lognormal around the beneficiary's price and the payer's purse; cash in steps of 5.00."""
    spread = np.exp(population.price_sigma[beneficiary] * rng.standard_normal(len(payer)))
    cents = population.price_cents[beneficiary] * population.payer_purse[payer] * spread
    exact = np.clip(np.rint(cents), _SMALLEST_CENTS, _LARGEST_CENTS).astype(np.int64)
    in_steps = np.maximum(exact // _CASH_STEP_CENTS, 1) * _CASH_STEP_CENTS
    return np.where(payment_type == CASH, in_steps, exact)

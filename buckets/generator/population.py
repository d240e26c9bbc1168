"""Who pays whom: payers with their cards and favourite beneficiaries, beneficiaries with their prices.

A few beneficiaries are very busy, as in a Zipf law, and the busiest are the cheapest: supermarkets and buses
see many small payments, car dealers and suppliers few large ones. So neither number nor sum alone makes a
busy beneficiary look like a money mule.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import Integers

_PAYER_SPREAD = 1.2
_PURSE_SPREAD = 0.35
_POPULARITY_SHIFT = 6
_POPULARITY_EXPONENT = 1.05
_CHEAPEST_CENTS = 900
_PRICE_EXPONENT = 0.33
_PRICE_SPREAD = 0.45
_SUPPLIER_SHARE = 0.04
_SUPPLIER_CENTS = 250_000
_SUPPLIER_SPREAD = 1.45
_EVERYDAY_SPREAD = 0.75
_FAVOURITES = 4


@dataclass(frozen=True)
class Population:
    """Everyone in a stream.

    Attributes:
        payer_weight: by payer, the share of all payments; sums to 1.
        payer_purse: by payer, a factor on prices, around 1.
        favourites: by payer, some beneficiaries that are paid again and again; shape (payers, few).
        beneficiary_weight: by beneficiary, the share of payments outside the favourites; sums to 1.
        price_cents: by beneficiary, the median price.
        price_sigma: by beneficiary, the spread of the logarithm of prices.
        cards_by_owner: all cards, those of payer 0 first.
        first_card: by payer, where the payer's cards start in `cards_by_owner`.
        card_count: by payer, at least 1.
    """

    payer_weight: NDArray[np.float64]
    payer_purse: NDArray[np.float64]
    favourites: Integers
    beneficiary_weight: NDArray[np.float64]
    price_cents: NDArray[np.float64]
    price_sigma: NDArray[np.float64]
    cards_by_owner: Integers
    first_card: Integers
    card_count: Integers

    def draw_cards(self, rng: np.random.Generator, payers: Integers) -> Integers:
        """Draw for each payer one of the payer's own cards."""
        choice = (rng.random(len(payers)) * self.card_count[payers]).astype(np.int64)
        cards: Integers = self.cards_by_owner[self.first_card[payers] + choice]
        return cards


def draw_population(rng: np.random.Generator, settings: GeneratorSettings) -> Population:
    """Draw everyone in a stream with these settings."""
    payer_weight = rng.lognormal(0.0, _PAYER_SPREAD, settings.payers)
    count = settings.beneficiaries
    rank = rng.permutation(count)
    popularity = (rank + _POPULARITY_SHIFT) ** -_POPULARITY_EXPONENT
    beneficiary_weight = popularity / popularity.sum()
    price_cents = _CHEAPEST_CENTS * (rank + 1.0) ** _PRICE_EXPONENT * rng.lognormal(0.0, _PRICE_SPREAD, count)
    is_supplier = (rank > count // 2) & (rng.random(count) < _SUPPLIER_SHARE)
    owners = np.concatenate(
        [np.arange(settings.payers), rng.integers(0, settings.payers, settings.cards - settings.payers)]
    )
    cards_by_owner = rng.permutation(settings.cards)
    card_count = np.bincount(owners, minlength=settings.payers)
    return Population(
        payer_weight=payer_weight / payer_weight.sum(),
        payer_purse=rng.lognormal(0.0, _PURSE_SPREAD, settings.payers),
        favourites=rng.choice(count, size=(settings.payers, _FAVOURITES), p=beneficiary_weight),
        beneficiary_weight=beneficiary_weight,
        price_cents=np.where(is_supplier, _SUPPLIER_CENTS, price_cents),
        price_sigma=np.where(is_supplier, _SUPPLIER_SPREAD, _EVERYDAY_SPREAD),
        cards_by_owner=cards_by_owner,
        first_card=np.cumsum(card_count) - card_count,
        card_count=card_count,
    )

"""Rents: on the first of a month tenants pay their landlords, the largest of whom looks like a mule.

This is where the fan-in rule raises false alarms: many payers, middling sums, one account, a few hours.
"""

import numpy as np

from buckets.duration import DAY_MS, HOUR_MS
from buckets.generator.population import Population
from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import CARD, Integers, Transactions, concatenate

_BENEFICIARIES_PER_LANDLORD = 400
_FEWEST_TENANTS = 15
_MOST_TENANTS = 64
_LARGEST_SHARE = 0.02
"""Of all transactions: a small stream has fewer tenants."""
_USUAL_HOUR = 9.0
_HOUR_SPREAD = 1.5
_RENT_CENTS = (60_000, 160_000)


def draw_rents(rng: np.random.Generator, settings: GeneratorSettings, population: Population) -> Transactions:
    """Draw all rents of a stream; the same tenant pays the same landlord the same rent each month."""
    landlord_count = max(1, settings.beneficiaries // _BENEFICIARIES_PER_LANDLORD)
    landlords = rng.permutation(settings.beneficiaries)[:landlord_count]
    tenant_counts = np.linspace(_MOST_TENANTS, _FEWEST_TENANTS, landlord_count).astype(np.int64)
    days_ms = _first_days_ms(settings)
    room = int(settings.transactions * _LARGEST_SHARE) // max(1, len(days_ms))
    landlord = np.repeat(landlords, tenant_counts)[:room]
    tenant = rng.integers(0, settings.payers, len(landlord))
    card = population.draw_cards(rng, tenant)
    rent_cents = rng.integers(*_RENT_CENTS, len(landlord)) // 1_000 * 1_000
    months = []
    for day_ms in days_ms.tolist():
        hour = rng.normal(_USUAL_HOUR, _HOUR_SPREAD, len(landlord)).clip(0.0, 23.9)
        months.append(
            Transactions(
                number=np.zeros(len(landlord), np.int64),
                event_time_ms=day_ms + (hour * HOUR_MS).astype(np.int64),
                payer=tenant,
                beneficiary=landlord,
                card=card,
                payment_type=np.full(len(landlord), CARD),
                amount_cents=rent_cents,
            )
        )
    none = Transactions(*([np.zeros(0, np.int64)] * 7))
    return concatenate([none, *months])


def _first_days_ms(settings: GeneratorSettings) -> Integers:
    """Return midnight of each first of a month that lies wholly in the stream, in ms since the epoch."""
    start, end = (np.datetime64(moment, "ms") for moment in (settings.start_ms, settings.end_ms))
    months = np.arange(start.astype("datetime64[M]"), end.astype("datetime64[M]") + 1)
    days_ms = months.astype("datetime64[ms]").astype(np.int64)
    inside = (days_ms >= settings.start_ms) & (days_ms + DAY_MS <= settings.end_ms)
    return np.asarray(days_ms[inside])

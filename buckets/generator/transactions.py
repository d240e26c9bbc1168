"""Transactions as columns of integers, with their external names; who pays whom, and planted cases."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from buckets.duration import DAY_MS, HOUR_MS
from buckets.generator.settings import GeneratorSettings

Integers = NDArray[np.int64]
FIELD_NAMES = ("transactionId", "eventTime", "payerId", "beneficiaryId", "cardId", "paymentType", "paymentAmount")
PAYMENT_TYPES = ("CSH", "CRD")
CASH, CARD = 0, 1


transaction_id: Callable[[int], str] = "t{:09d}".format
payer_id: Callable[[int], str] = "p{:06d}".format
beneficiary_id: Callable[[int], str] = "b{:05d}".format
card_id: Callable[[int], str] = "c{:06d}".format


def amount_text(cents: int) -> str:
    """Write an amount of money, 0 or more, with two digits after the point."""
    return f"{cents // 100}.{cents % 100:02d}"


@dataclass(frozen=True)
class Transactions:
    """Columns of equal length, one entry for each transaction; number makes its id, and amounts are above 0.

    The card is the payer's; cash is drawn with a card, too. `payment_type` is an index into `PAYMENT_TYPES`.
    """

    number: Integers
    event_time_ms: Integers
    payer: Integers
    beneficiary: Integers
    card: Integers
    payment_type: Integers
    amount_cents: Integers

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: Integers | slice) -> "Transactions":
        """Return the transactions of the given rows, in the order given."""
        return Transactions(*(getattr(self, field.name)[rows] for field in fields(self)))


def concatenate(parts: Sequence[Transactions]) -> Transactions:
    """Join all transactions of all parts, one part after the other."""
    return Transactions(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Transactions))
    )


Pattern = Literal["structuring", "card-testing", "mule-fan-in", "five-in-five"]
PATTERNS: tuple[Pattern, ...] = ("structuring", "card-testing", "mule-fan-in", "five-in-five")


@dataclass(frozen=True)
class PlantedCase:
    """The truth about one planted case; one line of the truth file."""

    case_id: str  # unique in its stream
    pattern: Pattern  # how the fraud is done
    # the rule of `conf/demo-rules.yaml` that catches it. Other rules may fire on the same events: twelve payments in
    # ten minutes are also five in five.
    rule_id: str
    key: dict[str, str]  # the rule's grouping fields and their values
    event_ids: tuple[str, ...]  # the planted events, by time
    first_time: int  # time of the first of them, in epoch ms
    last_time: int  # time of the last of them, in epoch ms
    detect_event_id: str  # the event at which the planted events alone first cross the rule's limit
    detect_by_time: int  # its time, in epoch ms
    description: str  # the case in English

    def to_json(self) -> str:
        """Return the case as one line of JSON, without its line end."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Draft:
    """A `PlantedCase` whose events have no numbers yet; `detect` is the row of the event that crosses the limit."""

    pattern: Pattern
    rule_id: str
    key: dict[str, str]
    events: Transactions
    detect: int
    description: str

    def numbered(self, case_number: int, numbers: Integers) -> PlantedCase:
        """Make the case, from its number (from 1, in its pattern) and those of its events, by time."""
        ids = tuple(transaction_id(number) for number in numbers.tolist())
        time_ms = self.events.event_time_ms.tolist()
        return PlantedCase(
            case_id=f"{self.pattern}-{case_number:03d}",
            pattern=self.pattern,
            rule_id=self.rule_id,
            key=self.key,
            event_ids=ids,
            first_time=time_ms[0],
            last_time=time_ms[-1],
            detect_event_id=ids[self.detect],
            detect_by_time=time_ms[self.detect],
            description=self.description,
        )


def recall(
    truth: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]
) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Compare alerts with the planted cases.

    Yields each pattern with the rule that is meant to catch it: how many cases were planted, how many had an alert of
    that rule, how many had one as soon as it was possible, and its alerts on events that belong to no case.
    """
    cases: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for case in truth:
        cases[case["pattern"], case["rule_id"]].append(case)
    planted = {event for members in cases.values() for case in members for event in case["event_ids"]}
    alerted: dict[str, list[str]] = defaultdict(list)
    for alert in alerts:
        alerted[alert["rule_id"]].append(alert["event_id"])
    for (pattern, rule_id), members in cases.items():
        events = set(alerted[rule_id])
        caught = sum(not events.isdisjoint(case["event_ids"]) for case in members)
        at_once = sum(case["detect_event_id"] in events for case in members)
        others = sum(event not in planted for event in alerted[rule_id])
        yield pattern, rule_id, len(members), caught, at_once, others


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
    """Everyone in a stream."""

    payer_weight: NDArray[np.float64]  # by payer, the share of all payments; sums to 1
    payer_purse: NDArray[np.float64]  # by payer, a factor on prices, around 1
    favourites: Integers  # by payer, some beneficiaries that are paid again and again; shape (payers, few)
    beneficiary_weight: NDArray[np.float64]  # by beneficiary, the share of payments outside the favourites; sums to 1
    price_cents: NDArray[np.float64]  # by beneficiary, the median price
    price_sigma: NDArray[np.float64]  # by beneficiary, the spread of the logarithm of prices
    cards_by_owner: Integers  # all cards, those of payer 0 first
    first_card: Integers  # by payer, where the payer's cards start in `cards_by_owner`
    card_count: Integers  # by payer, at least 1

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


_BENEFICIARIES_PER_LANDLORD = 400
_FEWEST_TENANTS = 15
_MOST_TENANTS = 64
_LARGEST_SHARE = 0.02  # Of all transactions: a small stream has fewer tenants
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
    months = len(days_ms)
    hour = rng.normal(_USUAL_HOUR, _HOUR_SPREAD, (months, len(landlord))).clip(0.0, 23.9)
    time_ms = (days_ms[:, np.newaxis] + (hour * HOUR_MS).astype(np.int64)).ravel()
    return Transactions(
        number=np.zeros(len(time_ms), np.int64),
        event_time_ms=time_ms,
        payer=np.tile(tenant, months),
        beneficiary=np.tile(landlord, months),
        card=np.tile(card, months),
        payment_type=np.full(len(time_ms), CARD),
        amount_cents=np.tile(rent_cents, months),
    )


def _first_days_ms(settings: GeneratorSettings) -> Integers:
    """Return midnight of the first of each month that is wholly in the stream, in ms since the epoch."""
    start, end = (np.datetime64(moment, "ms") for moment in (settings.start_ms, settings.end_ms))
    months = np.arange(start.astype("datetime64[M]"), end.astype("datetime64[M]") + 1)
    days_ms = months.astype("datetime64[ms]").astype(np.int64)
    inside = (days_ms >= settings.start_ms) & (days_ms + DAY_MS <= settings.end_ms)
    return np.asarray(days_ms[inside])


_WEEKDAY = (4, 2, 1, 1, 1, 3, 10, 28, 42, 45, 50, 62, 84, 78, 58, 54, 62, 86, 98, 80, 54, 34, 18, 9)
_WEEKEND = (9, 6, 3, 2, 1, 1, 3, 8, 20, 44, 70, 88, 92, 84, 78, 74, 70, 66, 62, 56, 46, 34, 24, 15)
_WEIGHT_BY_DAY = (0.95, 0.95, 1.0, 1.0, 1.15, 1.2, 0.75)  # Monday first
_WEEKDAY_OF_EPOCH = 3


def draw_times_ms(rng: np.random.Generator, count: int, start_ms: int, end_ms: int) -> Integers:
    """Draw event times in `[start_ms, end_ms)`, which is whole hours, in no order."""
    knots_ms = np.arange(start_ms, end_ms + 1, HOUR_MS)
    hours = knots_ms[:-1] // HOUR_MS
    weekday = (hours // 24 + _WEEKDAY_OF_EPOCH) % 7
    profile = np.where(weekday >= 5, np.array(_WEEKEND)[hours % 24], np.array(_WEEKDAY)[hours % 24])
    cumulative = np.concatenate([[0.0], np.cumsum(profile * np.array(_WEIGHT_BY_DAY)[weekday])])
    drawn = rng.random(count) * cumulative[-1]
    hour = np.searchsorted(cumulative, drawn, side="right") - 1
    time_ms: Integers = knots_ms[hour] + rng.integers(0, HOUR_MS, count)
    return time_ms


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
    count = settings.transactions - len(rents)
    leaders, followers_of, delay_ms = _draw_sprees(rng, count)
    payer = rng.choice(settings.payers, size=leaders, p=population.payer_weight)
    card = population.draw_cards(rng, payer)
    time_ms = draw_times_ms(rng, leaders, settings.start_ms, settings.end_ms)
    spree_ms = np.minimum(time_ms[followers_of] + delay_ms, settings.end_ms - 1)
    payer = np.concatenate([payer, payer[followers_of]])
    anyone = rng.choice(len(population.beneficiary_weight), size=count, p=population.beneficiary_weight)
    favourite = population.favourites[payer, rng.integers(0, population.favourites.shape[1], count)]
    beneficiary = np.where(rng.random(count) < _FAVOURITE_SHARE, favourite, anyone)
    payment_type = np.where(rng.random(count) < _CASH_SHARE, CASH, CARD)
    # Amounts are lognormal around the beneficiary's price and the payer's purse; cash is in steps of 5.00.
    spread = np.exp(population.price_sigma[beneficiary] * rng.standard_normal(count))
    cents = population.price_cents[beneficiary] * population.payer_purse[payer] * spread
    exact = np.clip(np.rint(cents), _SMALLEST_CENTS, _LARGEST_CENTS).astype(np.int64)
    in_steps = np.maximum(exact // _CASH_STEP_CENTS, 1) * _CASH_STEP_CENTS
    everyday = Transactions(
        number=np.zeros(count, np.int64),
        event_time_ms=np.concatenate([time_ms, spree_ms]),
        payer=payer,
        beneficiary=beneficiary,
        card=np.concatenate([card, card[followers_of]]),
        payment_type=payment_type,
        amount_cents=np.where(payment_type == CASH, in_steps, exact),
    )
    return concatenate([everyday, rents])


def _draw_sprees(rng: np.random.Generator, count: int) -> tuple[int, Integers, Integers]:
    """Return the number of independent payments; for each other payment, which one it follows, and after how long."""
    lengths = np.minimum(rng.geometric(_SPREE_ENDS, round(count * _SPREE_SHARE)), _LONGEST_SPREE)
    leaders = count - int(lengths.sum())
    first = rng.choice(leaders, size=len(lengths), replace=False)
    gap_ms = 1_000 + rng.exponential(_SPREE_GAP_MS, int(lengths.sum())).astype(np.int64)
    through_ms = np.cumsum(gap_ms)
    before_ms = np.concatenate([[0], through_ms])[np.cumsum(lengths) - lengths]
    return leaders, np.repeat(first, lengths), through_ms - np.repeat(before_ms, lengths)

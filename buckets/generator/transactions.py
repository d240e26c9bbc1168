"""Transactions as columns of integers, and the names that those integers have outside.

A planted case.
Recall.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
FIELD_NAMES = (
    "transactionId",
    "eventTime",
    "payerId",
    "beneficiaryId",
    "cardId",
    "paymentType",
    "paymentAmount",
)
PAYMENT_TYPES = ("CSH", "CRD")
CASH, CARD = 0, 1


def transaction_id(number: int) -> str:
    """Name a transaction."""
    return f"t{number:09d}"


def payer_id(payer: int) -> str:
    """Name a payer."""
    return f"p{payer:06d}"


def beneficiary_id(beneficiary: int) -> str:
    """Name a beneficiary."""
    return f"b{beneficiary:05d}"


def card_id(card: int) -> str:
    """Name a card."""
    return f"c{card:06d}"


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
        """Return how many there are."""
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


@dataclass(frozen=True)
class PatternRecall:
    """How one planted pattern fared."""

    pattern: str  # its name
    rule_id: str  # the rule that is meant to catch it
    planted: int  # cases
    caught: int  # cases of which some event raised an alert of that rule
    at_once: int  # cases that were caught at the first event where that was possible


def compare(truth: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]) -> list[PatternRecall]:
    """Compare alerts with the planted cases, pattern by pattern."""
    events_of_rule: dict[str, set[str]] = defaultdict(set)
    for alert in alerts:
        events_of_rule[alert["rule_id"]].add(alert["event_id"])
    cases: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for case in truth:
        cases[case["pattern"], case["rule_id"]].append(case)
    return [
        PatternRecall(
            pattern=pattern,
            rule_id=rule_id,
            planted=len(members),
            caught=sum(not events_of_rule[rule_id].isdisjoint(case["event_ids"]) for case in members),
            at_once=sum(case["detect_event_id"] in events_of_rule[rule_id] for case in members),
        )
        for (pattern, rule_id), members in cases.items()
    ]


def others(truth: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count alerts on events that belong to no planted case, by rule."""
    planted = {event for case in truth for event in case["event_ids"]}
    return Counter(alert["rule_id"] for alert in alerts if alert["event_id"] not in planted)


def recall_rows(truth: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield rows of a table: pattern, rule, how many were planted, caught, caught at once, and other alerts."""
    beside = others(truth, alerts)
    for recall in compare(truth, alerts):
        numbers = (recall.planted, recall.caught, recall.at_once, beside[recall.rule_id])
        yield recall.pattern, recall.rule_id, *(f"{number:,}" for number in numbers)

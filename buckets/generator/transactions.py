"""Transactions as columns of integers, and the names that those integers have outside."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

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

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
    """The name of a transaction."""
    return f"t{number:09d}"


def payer_id(payer: int) -> str:
    """The name of a payer."""
    return f"p{payer:06d}"


def beneficiary_id(beneficiary: int) -> str:
    """The name of a beneficiary."""
    return f"b{beneficiary:05d}"


def card_id(card: int) -> str:
    """The name of a card."""
    return f"c{card:06d}"


def amount_text(cents: int) -> str:
    """An amount of money, 0 or more, with its two digits after the point."""
    return f"{cents // 100}.{cents % 100:02d}"


@dataclass(frozen=True)
class Transactions:
    """Columns of equal length, one entry for each transaction.

    Attributes:
        number: what makes the transaction's id.
        event_time_ms: ms since the epoch.
        payer: who pays.
        beneficiary: who is paid.
        card: the payer's card; cash is drawn with a card, too.
        payment_type: index into `PAYMENT_TYPES`.
        amount_cents: hundredths, above 0.
    """

    number: Integers
    event_time_ms: Integers
    payer: Integers
    beneficiary: Integers
    card: Integers
    payment_type: Integers
    amount_cents: Integers

    def __len__(self) -> int:
        """How many there are."""
        return len(self.number)

    def take(self, rows: Integers | slice) -> "Transactions":
        """The transactions of the given rows, in the order given."""
        return Transactions(*(getattr(self, field.name)[rows] for field in fields(self)))


def concatenate(parts: Sequence[Transactions]) -> Transactions:
    """All transactions of all parts, one part after the other."""
    return Transactions(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Transactions))
    )

"""Between what the values of a field or of an aggregate lie, as far as is known before any event is seen."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

INFINITY: Final = Decimal("Infinity")


@dataclass(frozen=True)
class ValueRange:
    """What a number can be."""

    lower: Decimal = -INFINITY  # the least number; minus infinity where there is none
    upper: Decimal = INFINITY  # the greatest number
    digits: int | None = None  # digits after the point; None where it can have any
    may_be_null: bool = True  # whether it can be NULL
    # how many different values there can be; None where there are very many, or it is not known
    size: int | None = None

    def of_events(self, counts_itself: bool) -> "ValueRange":
        """Return between what a value lies that is between the least and the greatest value of some events.

        Args:
            counts_itself: whether the event whose window it is surely counts, so that there is one.
        """
        return ValueRange(self.lower, self.upper, may_be_null=not counts_itself or self.may_be_null)

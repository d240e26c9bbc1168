"""Between what the values of a field or of an aggregate lie, as far as is known before any event is seen."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

INFINITY: Final = Decimal("Infinity")


@dataclass(frozen=True)
class ValueRange:
    """What a number can be.

    Attributes:
        lower: the least number; minus infinity where there is none.
        upper: the greatest number.
        digits: digits after the point; None where it can have any.
        may_be_null: whether it can be NULL.
        size: how many different values there can be; None where there are very many, or it is not known.
    """

    lower: Decimal = -INFINITY
    upper: Decimal = INFINITY
    digits: int | None = None
    may_be_null: bool = True
    size: int | None = None

    def of_events(self, counts_itself: bool) -> "ValueRange":
        """Return between what a value lies that is between the least and the greatest value of some events.

        Args:
            counts_itself: whether the event whose window it is surely counts, so that there is one.
        """
        return ValueRange(self.lower, self.upper, may_be_null=not counts_itself or self.may_be_null)

"""The least value of a field that at least `p` per cent of its values do not exceed. Of no events it is NULL."""

from decimal import Decimal

from buckets.aggregates.aggregate import Aggregate, Component
from buckets.aggregates.single_event import SingleEvent


class _Percentile(SingleEvent):
    needs_p = True

    def __init__(self, p: Decimal) -> None:
        component = Component("percentile", "value", parameter=int(p * 100))
        super().__init__(f"the {_ordinal(p)} percentile of", component)

    def of_p(self, p: Decimal) -> Aggregate:
        return _Percentile(p)


def _ordinal(p: Decimal) -> str:
    """A number as in `the 95th`."""
    number = format(p, "f")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    if "." in number or number[-2:] in ("11", "12", "13"):
        return f"{number}th"
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")


AGGREGATE = _Percentile(Decimal(50))

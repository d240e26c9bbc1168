"""The least value of a field that at least `p` per cent of its values do not exceed. Of no events it is NULL."""

from collections.abc import Mapping
from decimal import Decimal

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import of_event


class _Percentile(Aggregate):
    needs_raw_events = True
    needs_p = True

    def __init__(self, p: Decimal) -> None:
        self.phrase = f"the {_ordinal(p)} percentile of"
        self._found = Component("percentile", "value", parameter=int(p * 100))

    def of_p(self, p: Decimal) -> Aggregate:
        return _Percentile(p)

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (self._found,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return of_event(found[self._found], own.scale)


def _ordinal(p: Decimal) -> str:
    """A number as in `the 95th`."""
    number = format(p, "f")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    if "." in number or number[-2:] in ("11", "12", "13"):
        return f"{number}th"
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")


AGGREGATE = _Percentile(Decimal(50))

"""Aggregates as loops over lists have them: each test of this folder says it of its own, in `ORACLES`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import pyarrow as pa

import buckets

Row = dict[str, Any]
SCHEMA = {
    "event_id": "id",
    "event_time": "time",
    "attributes": {"card": "string"},
    "measures": {"amount": {"scale": 2}},
}


@dataclass(frozen=True)
class Seen:
    """What a feature sees at an event: `row` is the event, `counted` all that count, `before` those before it."""

    row: Row
    counted: list[Row]
    before: list[Row]
    of: str | None = None
    p: Decimal | None = None
    half_life: int = 1

    @property
    def values(self) -> list[Fraction | str | bool]:
        """The field in those that count."""
        return [kept(each[self.of]) for each in self.counted]

    @property
    def scale(self) -> int:
        """Digits after the point of the field."""
        return 2 if self.of == "amount" else 0


class AggregateOracle(NamedTuple):
    """An aggregate: its value, and how many digits that has where its field has so many; `best` picks one value."""

    value: Callable[[Seen], Fraction | bool | None]
    digits: Callable[[int], int] = lambda scale: scale
    best: Callable[[Iterable[int]], int] | None = None


def kept(value: Any) -> Fraction | str | bool:
    """A value of a field: exact, if it is a number."""
    return value if isinstance(value, str | bool) else Fraction(value)


def rounded(number: Fraction, digits: int) -> Fraction:
    """Half to even."""
    return Fraction(round(number * 10**digits), 10**digits)


def of_values(value: Callable[[list[Fraction]], Fraction], **more: Any) -> AggregateOracle:
    """An aggregate of the values of a field, which is NULL of none."""
    return AggregateOracle(lambda seen: value(seen.values) if seen.counted else None, **more)


def oracles() -> dict[str, AggregateOracle]:
    """Those of all tests of this folder, by function."""
    package = import_module("tests.core.aggregates")
    tests = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    return {name: one for test in tests for name, one in getattr(test, "ORACLES", {}).items()}


def values_at(function: str, amounts: list[str | None], **feature: Any) -> list[Any]:
    """A feature over an hour, at payments of one card that come a second after each other."""
    named = {"x": {"function": function, "window": "1h"} | feature}
    rule = {"rule_id": "r", "group_by": ["card"], "features": named, "when": "x IS NOT NULL"}
    rows = [{"id": f"e{at}", "time": at * 1000, "card": "c", "amount": amount} for at, amount in enumerate(amounts)]
    schema = buckets.EventSchema.model_validate(SCHEMA)
    return buckets.features(pa.Table.from_pylist(rows), [buckets.Rule.model_validate(rule)], schema)["r.x"].to_pylist()

"""What a value can be: a number between two bounds, one of several texts, true or false, or NULL.

`narrowed` keeps of a domain what satisfies a comparison with a literal, so that comparisons that exclude each other
leave nothing. Where a number has a step, as an amount has cents, a bound is moved to the next number that there is.
"""

from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

from buckets.aggregates.value_range import INFINITY
from buckets.expressions.certainty import Value
from buckets.expressions.decimals import Interval
from buckets.numbers.fixed_point import INT64_MAX

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MOST_WORDS: Final = 4


@dataclass(frozen=True)
class Domain:
    """What a value can be."""

    lower: Decimal = -INFINITY  # the least number; minus infinity where there is none
    upper: Decimal = INFINITY  # the greatest number
    above: bool = False  # whether a number is above `lower`, and not equal to it
    below: bool = False  # whether a number is below `upper`
    digits: int | None = None  # digits after the point that a number has; None where it can have any
    members: frozenset[Any] | None = None  # what it is one of; None where that is not known
    excluded: frozenset[Any] = frozenset()  # what it is none of
    may_be_null: bool = True  # whether it can be NULL

    @property
    def may_be_known(self) -> bool:
        """Whether it can be anything but NULL."""
        if self.members is not None:
            return any(map(self._holds, self.members))
        if self.lower > self.upper or (self.lower == self.upper and (self.above or self.below)):
            return False
        return not (self.lower == self.upper and self.lower in self.excluded)

    def _holds(self, value: Any) -> bool:
        if value in self.excluded:
            return False
        if not isinstance(value, Decimal):
            return True
        is_above = self.lower < value if self.above else self.lower <= value
        return is_above and (value < self.upper if self.below else value <= self.upper)

    @property
    def size(self) -> int | None:
        """How many different values it can have; None where there are very many, or it is not known."""
        return None if self.members is None else sum(map(self._holds, self.members))

    @property
    def known(self) -> "Domain":
        """The same without NULL."""
        return replace(self, may_be_null=False)

    def narrowed(self, operator: str, value: Any) -> "Domain":
        """Keep what satisfies a comparison with a literal: a Decimal, a text or a boolean. NULL does not."""
        known = self.known
        if operator == "=":
            return known.one_of(frozenset([value]))
        if operator == "!=":
            return known.none_of(frozenset([value]))
        if operator in (">", ">="):
            is_open = operator == ">"
            if value < self.lower or (value == self.lower and self.above):
                return known
            return replace(known, lower=value, above=is_open)._on_steps()
        if value > self.upper or (value == self.upper and self.below):
            return known
        return replace(known, upper=value, below=operator == "<")._on_steps()

    def one_of(self, values: frozenset[Any]) -> "Domain":
        """Keep what is one of several values."""
        members = values if self.members is None else self.members & values
        if self.digits is not None:
            members = frozenset(member for member in members if _rounded(member, self.digits, ROUND_FLOOR) == member)
        return replace(self.known, members=members)

    def none_of(self, values: frozenset[Any]) -> "Domain":
        """Keep what is none of several values."""
        return replace(self.known, excluded=self.excluded | values)

    def _on_steps(self) -> "Domain":
        """Move the bounds to numbers that there are."""
        if self.digits is None:
            return self
        lower, upper = self.lower, self.upper
        if lower.is_finite():
            lower = _rounded(lower, self.digits, ROUND_CEILING)
            if self.above and lower == self.lower:
                lower = _EXACT.add(lower, Decimal(1).scaleb(-self.digits))
        if upper.is_finite():
            upper = _rounded(upper, self.digits, ROUND_FLOOR)
            if self.below and upper == self.upper:
                upper = _EXACT.subtract(upper, Decimal(1).scaleb(-self.digits))
        return replace(self, lower=lower, upper=upper, above=False, below=False)

    @property
    def hull(self) -> tuple[Decimal, Decimal]:
        """The least and the greatest number that it can be; it can be one."""
        if self.members is None:
            return self.lower, self.upper
        numbers = [member for member in self.members if isinstance(member, Decimal) and self._holds(member)]
        return (min(numbers), max(numbers)) if numbers else (self.lower, self.upper)

    def as_value(self, is_boolean: bool) -> Value:
        """Return it as `possible_truths` takes it: a number between bounds, or what is true."""
        if is_boolean:
            members = (True, False) if self.members is None else self.members
            truths = {member for member in members if self._holds(member)} | ({None} if self.may_be_null else set())
            return frozenset(truths or {None})
        return Interval(*self.hull, self.may_be_null) if self.may_be_known else None

    def in_words(self) -> str | None:
        """Say what its numbers are, in English; None where nothing is known of them."""
        if not self.may_be_known or (self.members is None and -self.lower == self.upper == INFINITY):
            return None
        if self.members is not None:
            possible = sorted(str(member) for member in self.members if self._holds(member))
            return f"one of {', '.join(possible)}" if len(possible) <= _MOST_WORDS else None
        if self.lower == self.upper:
            return f"always {_shown(self.lower)}"
        at_least = f"{'above' if self.above else 'at least'} {_shown(self.lower)}"
        at_most = f"{'below' if self.below else 'at most'} {_shown(self.upper)}"
        widest = INFINITY if self.digits is None else Decimal(INT64_MAX).scaleb(-self.digits)
        if self.upper >= widest > -self.lower:
            return at_least
        return at_most if -self.lower >= widest > self.upper else f"{at_least} and {at_most}"


def _shown(number: Decimal) -> str:
    """Write a number without zeros at its end."""
    return f"{_EXACT.normalize(number):,f}"


def _rounded(number: Decimal, digits: int, rounding: str) -> Decimal:
    """Return the next number with so many digits after the point, in a direction."""
    return number.quantize(Decimal(1).scaleb(-digits), rounding, _EXACT)


def between(lower: Decimal | int, upper: Decimal | int, digits: int | None = None, may_be_null: bool = False) -> Domain:
    """Return the domain of a number between two bounds, which it can be."""
    return Domain(Decimal(lower), Decimal(upper), digits=digits, may_be_null=may_be_null)


ANYTHING: Final = Domain()
TRUTH: Final = Domain(members=frozenset([True, False]))

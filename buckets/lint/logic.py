"""Determines with certainty whether a condition can be true, or false, from the possible values of its parts.

`may_hold` splits a condition at AND: comparisons of a term with literals narrow its domain, and if nothing remains, the
condition is never true. The rest is evaluated by `possible_truths` with the bounds of its parts; each branch of an OR
is checked under the constraints of the AND around it.

    paymentAmount > 10 AND paymentAmount < 5      nothing is above 10 and below 5: never true
    NOT count >= 1, with count at least 1         never true, so `count >= 1` is never false
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

from buckets.aggregates.aggregate import INFINITY
from buckets.events.conversion import MOST_ELEMENTS
from buckets.expressions.certainty import Truths, Value, possible_truths
from buckets.expressions.expression import (
    COMPARISONS,
    PATTERN_TESTS,
    TIME_PARTS,
    Expression,
    Kind,
    conjuncts,
    digits_after_point,
    normalise,
    to_sql,
)
from buckets.expressions.number_functions import OF_NUMBERS, Interval
from buckets.expressions.text_functions import (
    CHANGED_TEXTS,
    COMPARED_TEXTS,
    LONGEST_COMPARED,
    SIMILARITY_DIGITS,
    TEXT_FUNCTIONS,
)
from buckets.numbers.fixed_point import INT64_MAX
from buckets.printable import one_line, short_line

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MOST_WORDS: Final = 4
_MOST_COMPARED: Final = 20  # Up to so many parts are compared pairwise


@dataclass(frozen=True)
class Domain:
    """The possible values of a term."""

    lower: Decimal = -INFINITY  # the least number; minus infinity where there is none
    upper: Decimal = INFINITY  # the greatest number
    above: bool = False  # whether `lower` itself is excluded
    below: bool = False  # whether `upper` itself is excluded
    digits: int | None = None  # most digits after the point; None for any number
    members: frozenset[Any] | None = None  # the only possible values; None if unknown
    excluded: frozenset[Any] = frozenset()  # impossible values
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
        """The number of possible values; None if there are very many, or it is unknown."""
        return None if self.members is None else sum(map(self._holds, self.members))

    @property
    def known(self) -> "Domain":
        """The same domain without NULL."""
        return replace(self, may_be_null=False)

    def narrowed(self, operator: str, value: Any) -> "Domain":
        """Keep the values that satisfy a comparison with a literal: a Decimal, a text or a boolean. NULL does not."""
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
        """Keep the values that are among some values."""
        members = values if self.members is None else self.members & values
        if self.digits is not None:
            members = frozenset(member for member in members if _rounded(member, self.digits, ROUND_FLOOR) == member)
        return replace(self.known, members=members)

    def none_of(self, values: frozenset[Any]) -> "Domain":
        """Keep the values that are not among some values."""
        return replace(self.known, excluded=self.excluded | values)

    def _on_steps(self) -> "Domain":
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
        """Bounds of its numbers, of which one must be possible; whether a bound itself is excluded is ignored."""
        if self.members is None:
            return self.lower, self.upper
        numbers = [member for member in self.members if isinstance(member, Decimal) and self._holds(member)]
        return (min(numbers), max(numbers)) if numbers else (self.lower, self.upper)

    def as_value(self, is_boolean: bool) -> Value:
        """Return the domain as an input of `possible_truths`: a number between bounds, or a set of truths."""
        if is_boolean:
            members = (True, False) if self.members is None else self.members
            truths = {member for member in members if self._holds(member)} | ({None} if self.may_be_null else set())
            return frozenset(truths or {None})
        return Interval(*self.hull, self.may_be_null) if self.may_be_known else None

    def in_words(self) -> str | None:
        """Describe its numbers in English; None if nothing is known about them."""
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
        if self.upper >= widest:
            return None if -self.lower >= widest else at_least
        return at_most if -self.lower >= widest else f"{at_least} and {at_most}"


def _shown(number: Decimal) -> str:
    return f"{_EXACT.normalize(number):,f}"


def _rounded(number: Decimal, digits: int, rounding: str) -> Decimal:
    """Return the next number with so many digits after the point, in a direction."""
    return number.quantize(Decimal(1).scaleb(-digits), rounding, _EXACT)


def between(lower: Decimal | int, upper: Decimal | int, digits: int | None = None, may_be_null: bool = False) -> Domain:
    """Return the domain of a number between two bounds, inclusive."""
    return Domain(Decimal(lower), Decimal(upper), digits=digits, may_be_null=may_be_null)


ANYTHING: Final = Domain()
TRUTH: Final = Domain(members=frozenset([True, False]))


_CONDITIONS: Final = ("and", "or", "not", "in", *PATTERN_TESTS, "is_null", *COMPARISONS)
_COMPUTED: Final = (*OF_NUMBERS, "round")  # Numbers of numbers
_FIXED: Final = {"length": between(0, 2**31 - 1, 0, may_be_null=True),
                 "array_size": between(0, MOST_ELEMENTS, 0, may_be_null=True),
                 "jaro_winkler": between(0, 1, SIMILARITY_DIGITS, may_be_null=True),
                 "levenshtein": between(0, LONGEST_COMPARED, 0, may_be_null=True),
                 **{part: between(*span, 0) for part, span in TIME_PARTS.items() if span is not None}}  # fmt: skip
_OF_NUMBERS: Final = (*_COMPUTED, *COMPARED_TEXTS, *_FIXED)


Order = tuple[Expression, Expression]


@dataclass(frozen=True)
class Facts:
    """The known facts about the parts of a condition."""

    # of fields and features, by name; others are of a kind that is not known
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    domains: Mapping[Expression, Domain] = field(default_factory=dict)  # domains of parts
    orders: tuple[Order, ...] = ()  # pairs of names: the first is never above the second, if neither is NULL
    implied: tuple[Order, ...] = ()  # pairs of conditions: the second is true wherever the first is

    def of(self, part: Expression) -> Domain:
        """Return the domain of a part."""
        domain = self.domains.get(part, _FIXED.get(part.operator, ANYTHING))
        if domain is ANYTHING and part.operator == "%":
            domain = self._of_remainder(*part.operands)
        return replace(domain, members=TRUTH.members) if domain is ANYTHING and self.kind(part) == "boolean" else domain

    def _of_remainder(self, first: Expression, divisor: Expression) -> Domain:
        """Return the possible remainders of a division towards zero, all closer to zero than the divisor."""
        if not isinstance(divisor.value, Decimal) or divisor.value == 0:
            return ANYTHING
        divided, most = self.of(first), abs(divisor.value)
        lower = -most if divided.lower < 0 else Decimal(0)
        found = Domain(lower, most, above=lower < 0, below=True, may_be_null=divided.may_be_null)
        if divided.digits is None:
            return found
        return replace(found, digits=max(divided.digits, digits_after_point(most)))._on_steps()

    def never_above(self, lesser: Expression, greater: Expression) -> bool:
        """Return whether one number is surely never above another, if neither is NULL."""
        if lesser == greater or (lesser, greater) in self.orders:
            return True
        operator, value = greater.operator, greater.operands[-1].value if greater.operands else None
        if operator not in ("*", "+") or not isinstance(value, Decimal):
            return False
        grows = value >= 0 if operator == "+" else value >= 1 and self.of(greater.operands[0]).lower >= 0
        return grows and self.never_above(lesser, greater.operands[0])

    def of_name(self, name: str) -> Domain:
        """Return the domain of a field or a feature."""
        return self.of(Expression("field", value=name))

    def with_domain(self, part: Expression, domain: Domain) -> "Facts":
        """Return the same facts, with the domain of one part."""
        return replace(self, domains={**self.domains, part: domain})

    def kind(self, part: Expression) -> Kind | None:
        """Return the kind of a part; None if unknown."""
        operator = part.operator
        if operator == "field":
            return self.kinds.get(str(part.value))
        if part.is_literal:
            return operator  # type: ignore[return-value]
        if operator in _CONDITIONS:
            return "boolean"
        if operator in _OF_NUMBERS:
            return "number"
        if operator in CHANGED_TEXTS or operator == "date":
            return "text"
        if operator in ("coalesce", "greatest", "least", "case"):
            return self.kind(part.operands[operator == "case"])
        return None


def may_hold(condition: Expression, facts: Facts) -> bool:
    """Return whether a condition in normal form can be true; False is certain."""
    return given(condition, facts) is not None


def never_false(condition: Expression, facts: Facts) -> bool:
    """Return whether a condition is certain to be true or NULL."""
    return not may_hold(normalise(condition, is_negated=True), facts)


def always_holds(condition: Expression, facts: Facts) -> bool:
    """Return whether a condition is certain to be true."""
    return never_false(condition, facts) and None not in truths(condition, facts)


def given(condition: Expression, facts: Facts) -> Facts | None:
    """Return the facts that hold if a condition is true; None if it never is."""
    parts = conjuncts(condition)
    narrowed = facts
    for part in parts:
        if True not in truths(part, facts):
            return None
        for term, domain in _narrowings(part, narrowed):
            if not (domain.may_be_known or domain.may_be_null):
                return None
            narrowed = narrowed.with_domain(term, domain)
    related = _related(narrowed)
    if related is None:
        return None
    narrowed = related
    for part in parts:
        if part.operator == "or":
            possible = any(may_hold(branch, narrowed) for branch in part.operands)
        else:
            possible = True in truths(part, narrowed)
        if not possible:
            return None
    return narrowed


def _related(facts: Facts) -> Facts | None:
    """Return the facts that follow from relations between parts; None if they are contradictory."""
    for premise, consequence in facts.implied:
        for term, domain in _narrowings(consequence, facts) if truths(premise, facts) == {True} else ():
            if not (domain.may_be_known or domain.may_be_null):
                return None
            facts = facts.with_domain(term, domain)
    for pair in facts.orders:
        for (one, other), operator, end in ((pair, ">=", 0), (pair[::-1], "<=", 1)):
            known, narrowed = facts.of(one), facts.of(other)
            if known.may_be_known and not known.may_be_null and known.hull[end].is_finite():
                is_null = narrowed.may_be_null
                narrowed = replace(narrowed.narrowed(operator, known.hull[end]), may_be_null=is_null)
                if not (narrowed.may_be_known or is_null):
                    return None
                facts = facts.with_domain(other, narrowed)
    return facts


def implies(condition: Expression, other: Expression, facts: Facts) -> bool:
    """Return whether a condition can be true, and another one is then surely true."""
    where_true = given(condition, facts)
    if where_true is None or None in truths(other, where_true):
        return False
    negation = normalise(other, is_negated=True)
    return not may_hold(normalise(Expression("and", (condition, negation))), facts)


def _narrowings(part: Expression, facts: Facts) -> Iterator[tuple[Expression, Domain]]:
    """Yield the domains of the terms of a comparison where it is true."""
    operator, operands = part.operator, part.operands
    if (operands[0] if operator == "not" else part).tests_elements:
        return  # Only one element has to pass.
    if operator in COMPARISONS and operands[1].is_literal and not operands[0].is_literal:
        term, literal = operands
        if facts.kind(term) in (None, literal.operator) and not (
            literal.operator == "text" and operator not in ("=", "!=")
        ):
            domain = facts.of(term).narrowed(operator, literal.value)
            yield term, _of_text_function(term, domain)
    elif operator == "in":
        domain = facts.of(operands[0]).one_of(frozenset(literal.value for literal in operands[1:]))
        yield operands[0], _of_text_function(operands[0], domain)
    elif operator == "is_null":
        yield operands[0], replace(facts.of(operands[0]), members=frozenset())
    elif operator == "not":
        inner = operands[0]
        if inner.operator == "is_null":
            yield inner.operands[0], facts.of(inner.operands[0]).known
        elif inner.operator == "in":
            term, *others = inner.operands
            yield term, facts.of(term).none_of(frozenset(literal.value for literal in others))
        elif inner.operator in PATTERN_TESTS:
            yield inner, facts.of(inner).one_of(frozenset([False]))
    elif operator in PATTERN_TESTS:
        yield part, facts.of(part).one_of(frozenset([True]))


def _of_text_function(term: Expression, domain: Domain) -> Domain:
    """Return the possible results of a text function such as LOWER: only texts in lower case."""
    change = TEXT_FUNCTIONS.get(term.operator)
    if change is None or domain.members is None:
        return domain
    return replace(domain, members=frozenset(member for member in domain.members if change(str(member)) == member))


# --- truths -----------------------------------------------------------------------------------------------------


def truths(condition: Expression, facts: Facts) -> Truths:
    """Return all possible truths of a condition, or more, with its parts treated as independent."""
    row: dict[str, Value] = {}
    return possible_truths(_Reader(facts, row).condition(condition), row)


class _Reader:
    """Rewrites an expression for `possible_truths`, with fields in place of terms that it does not know."""

    def __init__(self, facts: Facts, row: dict[str, Value]) -> None:
        self._facts, self._row = facts, row
        self._names: dict[tuple[Expression, bool], str] = {}

    def condition(self, part: Expression) -> Expression:
        operator, operands = part.operator, part.operands
        if operator == "boolean":
            return part
        if operator == "field" or part in self._facts.domains:
            return self._named(part, self._facts.of(part).as_value(is_boolean=True))
        if operator in ("and", "or", "not"):
            return Expression(operator, tuple(map(self.condition, operands)))
        if operator in ("in", *COMPARISONS) and not part.tests_elements:
            return self._comparison(part)
        if operator == "is_null":
            return self._is_null(part)
        if operator == "coalesce" and self._facts.kind(part) == "boolean":
            return Expression(operator, tuple(map(self.condition, operands)))
        return self._named(part, self._anything(part))

    def _comparison(self, part: Expression) -> Expression:
        kinds = {self._facts.kind(operand) for operand in part.operands}
        if kinds <= {"number", None} and "number" in kinds:
            return self._of_numbers(part, Expression(part.operator, tuple(map(self.number, part.operands))))
        if all(operand.is_literal for operand in part.operands):
            return part
        if kinds == {"boolean"}:
            return Expression(part.operator, tuple(map(self.condition, part.operands)))
        return self._named(part, self._anything(part))

    def _of_numbers(self, part: Expression, compared: Expression) -> Expression:
        """Return a comparison of numbers, simplified if one is never above the other."""
        if part.operator in ("=", "!=", "in"):
            return compared
        high, low = part.operands if part.operator in (">", ">=") else part.operands[::-1]
        is_strict = part.operator in (">", "<")
        if not self._facts.never_above(*((high, low) if is_strict else (low, high))):
            return compared
        return self._named(part, possible_truths(compared, self._row) - {is_strict} or frozenset([None]))

    def _is_null(self, part: Expression) -> Expression:
        operand = part.operands[0]
        kind, domain = self._facts.kind(operand), self._facts.of(operand)
        if kind == "number":
            return Expression("is_null", (self.number(operand),))
        if kind == "boolean":
            return Expression("is_null", (self.condition(operand),))
        possible: set[Any] = set()
        if domain.may_be_null and not (kind == "text" and self._is_surely_known(operand)):
            possible.add(True)
        if domain.may_be_known:
            possible.add(False)
        return self._named(part, frozenset(possible or {True, False}))

    def number(self, part: Expression) -> Expression:
        operator = part.operator
        if operator == "number":
            return part
        if part not in self._facts.domains and (operator in _COMPUTED or self._is_function(part)):
            return Expression(operator, tuple(map(self.number, part.operands)), part.value)
        return self._named(part, self._facts.of(part).as_value(is_boolean=False))

    def _is_function(self, part: Expression) -> bool:
        if part.operator not in ("coalesce", "greatest", "least"):
            return False
        return all(self._facts.kind(operand) in ("number", None) for operand in part.operands)

    def _anything(self, part: Expression) -> Truths:
        """Return true or false, or also NULL if a field in it can be NULL."""
        return frozenset({True, False} if self._is_surely_known(part) else {True, False, None})

    def _is_surely_known(self, part: Expression) -> bool:
        """Return whether a part about texts is never NULL, since none of its fields is."""
        simple = ("text", "field", "in", "date", "zone", *PATTERN_TESTS, *COMPARISONS, *TEXT_FUNCTIONS)
        if part.operator not in simple or part.is_array:
            return False
        if part.operator == "field":
            return not self._facts.of(part).may_be_null
        return all(map(self._is_surely_known, part.operands))

    def _named(self, part: Expression, value: Value) -> Expression:
        is_boolean = isinstance(value, frozenset)
        name = self._names.setdefault((part, is_boolean), f"part {len(self._names)}")
        self._row[name] = value
        return Expression("field", value=name)


def redundant(condition: Expression, facts: Facts) -> Iterator[Order]:
    """Yield parts that could be removed without changing when a condition is true, each with the reason for it."""
    parts = parts_of(condition)
    for part in parts if len(parts) > 1 else ():
        yield from redundant(part, facts)
    if len(parts) > _MOST_COMPARED:
        return
    left = list(parts)
    for part in parts:
        fields = set(part.fields())
        for other in left:
            one, then = (part, other) if condition.operator == "or" else (other, part)
            is_near = other != part and (facts.orders or fields.intersection(other.fields()))
            if is_near and implies(one, then, facts):
                left.remove(part)
                yield part, other
                break


def parts_of(condition: Expression) -> tuple[Expression, ...]:
    """Return the operands of a condition joined by AND or OR; otherwise the condition itself."""
    return condition.operands if condition.operator == "or" else tuple(conjuncts(condition))


def shown(condition: Expression) -> str:
    """Write a condition as SQL, shortened to a line."""
    return short_line(one_line(to_sql(condition)))

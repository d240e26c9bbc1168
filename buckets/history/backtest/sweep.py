"""Sweeps: a rule with other numbers in it, tried side by side with the rule as it is written.

limit=1000..10000:10             ten limits from 1,000 to 10,000
payer-24h.window=1h,6h,24h       three windows of the rule payer-24h
spike.when.payments=5..20:4      four numbers instead of the 10 in `payments >= 10`
spike.recent.window=1h,2h        two windows of the feature `recent`
payer-24h.cooldown=none,1h,6h    three cooldowns

Several sweeps are tried in all their combinations: each makes a variant of a rule, with a separate id.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError

from buckets.duration import format_duration, parse_duration_ms
from buckets.errors import BucketsError
from buckets.expressions.expression import COMPARISONS, Expression, digits_after_point
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import in_quotes
from buckets.rules.revision import names
from buckets.rules.rule import VARIANT_MARK, Rule
from buckets.validation import first_fault


def _comparisons(expression: Expression, feature: str) -> Iterator[Expression]:
    operands = expression.operands
    has_feature = any(operand.operator == "field" and operand.value == feature for operand in operands)
    if expression.operator in COMPARISONS and has_feature and any(map(_is_number, operands)):
        yield expression
    for operand in operands:
        yield from _comparisons(operand, feature)


def _is_number(expression: Expression) -> bool:
    if expression.operator == "negate":
        return _is_number(expression.operands[0])
    return expression.operator == "number"


def _replaced(expression: Expression, old: Expression, new: Expression) -> Expression:
    if expression is old:
        return new
    return replace(expression, operands=tuple(_replaced(operand, old, new) for operand in expression.operands))


MOST_VARIANTS = 1000
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_PARAMETER = re.compile(rf"(limit|window|cooldown|when\.{_WORD}|{_WORD}\.window)=(.*)", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"(.+?)\.\.(.+?):(\d{1,6})", re.ASCII)
NONE = "none"  # The value of a cooldown that is left out
_MOST_DIGITS = 38  # Before or after the point; limits have no more
_MORE_DIGITS = 2
"""Values of a range that does not divide evenly get this many more digits than its ends."""


@dataclass(frozen=True)
class Sweep:
    """The values, as displayed, to try for a number of a rule.

    `parameter` is `limit`, `window` or `cooldown`; `when.` and a feature; or a feature and `.window`.
    """

    rule_id: str
    parameter: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """The parameter with its rule."""
        return f"{self.rule_id}.{self.parameter}"


def parse_sweeps(texts: Iterable[str], rules: Sequence[Rule]) -> tuple[Sweep, ...]:
    """Parse sweeps as at the top of this module; a parameter without a rule belongs to the only rule that has it."""
    sweeps: list[Sweep] = []
    for text in texts:
        try:
            sweep = _parse(text, rules)
        except ValueError as error:
            message = f"sweep {in_quotes(text)}: {error}"
            raise BucketsError(message) from None
        if any(other.name == sweep.name for other in sweeps):
            message = f"sweep {in_quotes(text)}: {sweep.name} is swept twice; write all its values in one sweep"
            raise BucketsError(message)
        sweeps.append(sweep)
    count = prod(len(sweep.values) for sweep in sweeps)
    if count > MOST_VARIANTS:
        message = f"sweep: {count:,} combinations are more than {MOST_VARIANTS:,}; sweep fewer values at once"
        raise BucketsError(message)
    return tuple(sweeps)


def _parse(text: str, rules: Sequence[Rule]) -> Sweep:
    """Parse a sweep.

    Raises:
        ValueError: it is not a sweep, or not of these rules.
    """
    live = [rule for rule in rules if rule.state != "DELETE"]
    for rule in sorted(live, key=lambda rule: -len(rule.rule_id)):
        written = _PARAMETER.fullmatch(text.removeprefix(f"{rule.rule_id}."))
        if text.startswith(f"{rule.rule_id}.") and written is not None:
            having = [rule]
            break
    else:
        written = _PARAMETER.fullmatch(text)
        words = {"limit", "window", "cooldown", "when"}.union(*(rule.features for rule in live if not rule.is_short))
        if written is None or written[1].partition(".")[0] not in words:
            message = (
                f"no rule and parameter; write RULE.limit=1000..10000:10 or RULE.window=1h,6h; rules: {_ids(live)}"
            )
            raise ValueError(message)
        tried = [rule for rule in live if rule.is_evaluated] or live
        having = tried if len(tried) == 1 else [rule for rule in tried if _lack(rule, written[1]) is None]
        if len(having) != 1:
            reason = "no rule has that" if not having else f"{len(having):,} rules have that"
            message = f"{reason}; name a rule, as in RULE.{written[1]}=…; rules: {_ids(having or live)}"
            raise ValueError(message)
    (rule,), parameter = having, written[1]
    fault = _lack(rule, parameter)
    if fault is None and not rule.is_evaluated:
        fault = f"rule {rule.rule_id} is not evaluated, for its state is {rule.state}; make it ACTIVE"
    if fault is not None:
        raise ValueError(fault)
    is_number = parameter == "limit" or parameter.startswith("when.")
    return Sweep(rule.rule_id, parameter, tuple(_values(written[2], is_number, may_be_none=parameter == "cooldown")))


def _ids(rules: Iterable[Rule]) -> str:
    return names(rule.rule_id for rule in rules)


def _lack(rule: Rule, parameter: str) -> str | None:
    """Say why a rule lacks such a parameter; None if it has it."""
    head, _, last = parameter.rpartition(".")
    feature = last if head == "when" else head
    if feature and rule.is_short:
        return f"rule {rule.rule_id} has no features; it has limit, window and cooldown"
    if feature and feature not in rule.features:
        return f"rule {rule.rule_id} has no feature {feature}; it has {', '.join(rule.features) or 'none'}"
    if head == "when":
        from buckets.expressions.parser import parse_expression

        count = sum(1 for _ in _comparisons(parse_expression(rule.when.text), feature))
        how_often = "with no number" if not count else f"{count:,} times with a number"
        remedy = f"sweep one that is compared with one, as in {feature} > 5"
        return None if count == 1 else f"the condition compares {feature} {how_often}; {remedy}"
    if not feature and parameter != "cooldown" and not rule.is_short:
        first = next(iter(rule.features), None)
        if first is None:
            return f"rule {rule.rule_id} has no features; sweep cooldown"
        return f"rule {rule.rule_id} has features; sweep when.{first}, {first}.window or cooldown"
    return None


def _values(text: str, is_number: bool, may_be_none: bool) -> list[str]:
    """Parse the values of a sweep: a range or a list.

    Raises:
        ValueError: it is neither.
    """
    written = _RANGE.fullmatch(text)
    if written is None:
        values = [_value(part.strip(), is_number, may_be_none) for part in text.split(",")]
    else:
        steps = int(written[3])
        if not 2 <= steps <= MOST_VARIANTS:
            message = f"{steps:,} is not a number of values; a range FROM..TO:N has 2 to {MOST_VARIANTS:,}"
            raise ValueError(message)
        ends = [_value(part.strip(), is_number, may_be_none=False) for part in written.groups()[:2]]
        begin, end = map(Fraction, ends if is_number else map(parse_duration_ms, ends))
        exact = [begin + (end - begin) / (steps - 1) * step for step in range(steps)]
        values = _shown(exact, ends) if is_number else [format_duration(round(value)) for value in exact]
    known = [Decimal(value) if is_number else value for value in values]
    twice = next((shown for shown, value in zip(values, known, strict=True) if known.count(value) > 1), None)
    if twice is not None:
        message = f"the value {twice} is there twice; write each once, or fewer of the range"
        raise ValueError(message)
    return values


def _value(text: str, is_number: bool, may_be_none: bool) -> str:
    if may_be_none and text == NONE:
        return text
    if is_number:
        try:
            number = parse_decimal(text)
        except ValueError:
            message = f"{text!r} is not a number; write 1000..10000:10 or 1000,2000,5000"
            raise ValueError(message) from None
        if abs(number.adjusted()) >= _MOST_DIGITS:
            message = f"{text!r} has more than {_MOST_DIGITS} digits"
            raise ValueError(message)
        return format(number, "f")
    return format_duration(parse_duration_ms(text))


def _shown(numbers: Sequence[Fraction], ends: Iterable[str]) -> list[str]:
    """Return evenly spaced numbers with as few digits as they need, at most two more than the ends."""
    least = max(digits_after_point(Decimal(end)) for end in ends)
    for digits in range(least, least + _MORE_DIGITS + 1):
        if all((number * 10**digits).denominator == 1 for number in numbers):
            break
    return [format(Decimal(round(number * 10**digits)).scaleb(-digits), "f") for number in numbers]


@dataclass(frozen=True)
class Combination:
    """One value of each sweep, in their order, and the variants that together raise the combination's alerts."""

    values: tuple[str, ...]
    rules: tuple[str, ...]
    is_as_written: bool


@dataclass(frozen=True)
class SweptRules:
    """The variants to try beside the rules."""

    sweeps: tuple[Sweep, ...] = ()  # what was asked for
    rules: tuple[Rule, ...] = ()  # the variants, each with an id of its own
    written: Mapping[str, Rule] = field(default_factory=dict)  # by the id of a variant, the rule that it is one of
    combinations: tuple[Combination, ...] = ()  # all of them, the last sweep changing fastest


NO_SWEEP = SweptRules()


def swept_rules(sweeps: Sequence[Sweep], rules: Iterable[Rule]) -> SweptRules:
    """Make the variants of some sweeps."""
    by_id = {rule.rule_id: rule for rule in rules}
    swept = [by_id[rule_id] for rule_id in dict.fromkeys(sweep.rule_id for sweep in sweeps)]
    variants: dict[tuple[str, tuple[str, ...]], Rule] = {}
    combinations = []
    for values in product(*(sweep.values for sweep in sweeps)) if sweeps else ():
        of_values, is_as_written = [], True
        for rule in swept:
            own = [(s, value) for s, value in zip(sweeps, values, strict=True) if s.rule_id == rule.rule_id]
            identity = rule.rule_id, tuple(value for _, value in own)
            if identity not in variants:
                variants[identity] = _variant(rule, own, len(variants))
            of_values.append(variants[identity].rule_id)
            kept = {"rule_id": rule.rule_id, "state": rule.state, "rollout": rule.rollout}
            is_as_written &= variants[identity].model_copy(update=kept) == rule
        combinations.append(Combination(values, tuple(of_values), is_as_written))
    written = {variant.rule_id: by_id[rule_id] for (rule_id, _), variant in variants.items()}
    return SweptRules(tuple(sweeps), tuple(variants.values()), written, tuple(combinations))


def _variant(rule: Rule, changes: Iterable[tuple[Sweep, str]], number: int) -> Rule:
    """Give a rule other values: on trial, for all keys, and with an id that no written rule has."""
    data = rule.model_dump(by_alias=True, mode="json")
    for sweep, value in changes:
        _change(data, sweep.parameter, value)
        try:
            Rule.model_validate(data)
        except ValidationError as error:
            message = f"sweep {sweep.name}={value}: {first_fault(error)[1]}"
            raise BucketsError(message) from None
    return Rule.model_validate(data | {"rule_id": f"{VARIANT_MARK}{number}", "state": "SHADOW", "rollout": "100%"})


def _change(data: dict[str, Any], parameter: str, value: str) -> None:
    head, _, last = parameter.rpartition(".")
    if parameter == "limit":
        data["limit"] = data["limit"] | {"value": value}
    elif parameter == "cooldown":
        data.pop("cooldown", None)
        data |= {} if value == NONE else {"cooldown": value}
    elif head == "when":
        from buckets.expressions.expression import to_sql
        from buckets.expressions.parser import parse_expression

        expression, literal = parse_expression(data["when"]), Expression("number", value=Decimal(value))
        (old,) = _comparisons(expression, last)
        operands = tuple(literal if _is_number(operand) else operand for operand in old.operands)
        data["when"] = to_sql(_replaced(expression, old, replace(old, operands=operands)))
    elif head:
        feature = data["features"][head]
        data["features"] = data["features"] | {head: feature | {"window": _reaching(feature["window"], value)}}
    else:
        data["window"] = _reaching(data["window"], value)


def _reaching(window: Mapping[str, Any], value: str) -> dict[str, Any]:
    return {**window, "within" if "last" in window else "length": value}

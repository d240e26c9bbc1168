"""Sweeps: a rule with other numbers in it, tried side by side with the rule as it is written.

limit=1000..10000:10             ten limits from 1,000 to 10,000
payer-24h.window=1h,6h,24h       three windows of the rule payer-24h
spike.when.payments=5..20:4      four numbers instead of the one that the condition compares with the feature `payments`
spike.recent.window=1h,2h        two windows of the feature `recent`
payer-24h.cooldown=none,1h,6h    three cooldowns

Several sweeps are tried in all their combinations. Each different rule that results is a *variant*, which goes through
the engine as a rule on trial, in the same pass as the rules themselves: it changes nothing for others.
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

MOST_VARIANTS = 1000
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_PARAMETER = re.compile(rf"(limit|window|cooldown|when\.{_WORD}|{_WORD}\.window)=(.*)", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"(.+?)\.\.(.+?):(\d{1,6})", re.ASCII)
_NONE = "none"
_MORE_DIGITS = 2
"""So many more digits than they are written with have the values of a range that does not divide evenly."""


@dataclass(frozen=True)
class Sweep:
    """The values that are tried of a number of a rule.

    Attributes:
        rule_id: the rule.
        parameter: `limit`, `window`, `cooldown`, `when.FEATURE` or `FEATURE.window`.
        values: as they are shown, in their order.
    """

    rule_id: str
    parameter: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """The parameter with its rule."""
        return f"{self.rule_id}.{self.parameter}"


@dataclass(frozen=True)
class Combination:
    """One value of each sweep.

    Attributes:
        values: in the order of the sweeps.
        rules: the variants whose alerts, taken together, are those of the combination.
        is_as_written: whether the rules have these values already.
    """

    values: tuple[str, ...]
    rules: tuple[str, ...]
    is_as_written: bool


@dataclass(frozen=True)
class SweptRules:
    """What is tried beside the rules.

    Attributes:
        sweeps: what was asked for.
        rules: the variants, each with an id of its own.
        written: by the id of a variant, the rule that it is one of.
        combinations: all of them, the last sweep changing fastest.
    """

    sweeps: tuple[Sweep, ...] = ()
    rules: tuple[Rule, ...] = ()
    written: Mapping[str, Rule] = field(default_factory=dict)
    combinations: tuple[Combination, ...] = ()


NO_SWEEP = SweptRules()


def parse_sweeps(texts: Iterable[str], rules: Sequence[Rule]) -> tuple[Sweep, ...]:
    """Read sweeps as people write them.

    Args:
        texts: as at the top of this module.
        rules: the rules; a parameter without a rule is that of the only rule that has it.

    Raises:
        BucketsError: one cannot be read, names no rule or parameter, or two are of the same; or there are too many
            combinations.
    """
    sweeps: list[Sweep] = []
    for text in texts:
        try:
            sweep = _parse(text, rules)
        except ValueError as error:
            message = f"sweep {in_quotes(text)}: {error}"
            raise BucketsError(message) from None
        if any(each.name == sweep.name for each in sweeps):
            message = f"sweep {in_quotes(text)}: {sweep.name} is swept twice; write all its values in one sweep"
            raise BucketsError(message)
        sweeps.append(sweep)
    count = prod(len(sweep.values) for sweep in sweeps)
    if count > MOST_VARIANTS:
        message = f"sweep: {count:,} combinations are more than {MOST_VARIANTS:,}; sweep fewer values at once"
        raise BucketsError(message)
    return tuple(sweeps)


def swept_rules(sweeps: Sequence[Sweep], rules: Iterable[Rule]) -> SweptRules:
    """The variants that sweeps ask for.

    Args:
        sweeps: of `parse_sweeps`.
        rules: the rules, among which are those that are swept.

    Raises:
        BucketsError: a value does not make a valid rule.
    """
    by_id = {rule.rule_id: rule for rule in rules}
    swept = [by_id[rule_id] for rule_id in dict.fromkeys(sweep.rule_id for sweep in sweeps)]
    variants: dict[tuple[str, tuple[str, ...]], Rule] = {}
    combinations = []
    for values in product(*(sweep.values for sweep in sweeps)) if sweeps else ():
        found, is_as_written = [], True
        for rule in swept:
            own = [(s, value) for s, value in zip(sweeps, values, strict=True) if s.rule_id == rule.rule_id]
            identity = rule.rule_id, tuple(value for _, value in own)
            if identity not in variants:
                variants[identity] = _variant(rule, own, len(variants))
            found.append(variants[identity].rule_id)
            is_as_written &= _same(variants[identity], rule)
        combinations.append(Combination(values, tuple(found), is_as_written))
    written = {variant.rule_id: by_id[rule_id] for (rule_id, _), variant in variants.items()}
    return SweptRules(tuple(sweeps), tuple(variants.values()), written, tuple(combinations))


def _same(variant: Rule, rule: Rule) -> bool:
    return variant.model_copy(update={"rule_id": rule.rule_id, "state": rule.state, "rollout": rule.rollout}) == rule


def _variant(rule: Rule, changes: Iterable[tuple[Sweep, str]], number: int) -> Rule:
    """A rule with other values: on trial, for all keys, and with an id that no rule of a person has."""
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
    """Put a value into a rule as it is written."""
    head, _, last = parameter.rpartition(".")
    if parameter == "limit":
        data["limit"] = data["limit"] | {"value": value}
    elif parameter == "cooldown":
        data.pop("cooldown", None)
        data |= {} if value == _NONE else {"cooldown": value}
    elif head == "when":
        data["when"] = _condition_with(data["when"], last, Decimal(value))
    elif head:
        feature = data["features"][head]
        data["features"] = data["features"] | {head: feature | {"window": feature["window"] | {"length": value}}}
    else:
        data["window"] = data["window"] | {"length": value}


def _parse(text: str, rules: Sequence[Rule]) -> Sweep:
    """Read a sweep.

    Raises:
        ValueError: it is none, or none of these rules.
    """
    live = [rule for rule in rules if rule.state != "DELETE"]
    for rule in sorted(live, key=lambda each: -len(each.rule_id)):
        found = _PARAMETER.fullmatch(text.removeprefix(f"{rule.rule_id}."))
        if text.startswith(f"{rule.rule_id}.") and found is not None:
            return _of_rule(rule, found[1], found[2])
    found = _PARAMETER.fullmatch(text)
    if found is None or (found[1].partition(".")[0] not in _known_words(live)):
        message = f"no rule and parameter; write RULE.limit=1000..10000:10 or RULE.window=1h,6h; rules: {_ids(live)}"
        raise ValueError(message)
    tried = [rule for rule in live if rule.is_evaluated] or live
    having = tried if len(tried) == 1 else [rule for rule in tried if _lack(rule, found[1]) is None]
    if len(having) != 1:
        reason = "no rule has that" if not having else f"{len(having):,} rules have that"
        message = f"{reason}; name a rule, as in RULE.{found[1]}=…; rules: {_ids(having or live)}"
        raise ValueError(message)
    return _of_rule(having[0], found[1], found[2])


def _known_words(rules: Iterable[Rule]) -> set[str]:
    """With what a parameter without a rule may begin."""
    return {"limit", "window", "cooldown", "when"}.union(*(rule.features for rule in rules))


def _ids(rules: Iterable[Rule]) -> str:
    return names(rule.rule_id for rule in rules)


def _of_rule(rule: Rule, parameter: str, values: str) -> Sweep:
    lack = _lack(rule, parameter)
    if lack is not None:
        raise ValueError(lack)
    if not rule.is_evaluated:
        message = f"rule {rule.rule_id} is not evaluated, for its state is {rule.state}; make it ACTIVE"
        raise ValueError(message)
    is_number = parameter == "limit" or parameter.startswith("when.")
    return Sweep(rule.rule_id, parameter, tuple(_values(values, is_number, may_be_none=parameter == "cooldown")))


def _lack(rule: Rule, parameter: str) -> str | None:
    """Why a rule has no such parameter; None if it has."""
    head, _, last = parameter.rpartition(".")
    feature = last if head == "when" else head
    if feature and rule.when is None:
        return f"rule {rule.rule_id} has no features; it has limit, window and cooldown"
    if feature and feature not in rule.features:
        return f"rule {rule.rule_id} has no feature {feature}; it has {', '.join(rule.features)}"
    if head == "when":
        assert rule.when is not None
        return _ambiguity(rule.when.text, feature)
    if not feature and parameter != "cooldown" and rule.when is not None:
        first = next(iter(rule.features))
        return f"rule {rule.rule_id} has features; sweep when.{first}, {first}.window or cooldown"
    return None


def _values(text: str, is_number: bool, may_be_none: bool) -> list[str]:
    """The values of a sweep: a range or a list.

    Raises:
        ValueError: it is neither.
    """
    written = _RANGE.fullmatch(text)
    if written is None:
        found = [_value(each.strip(), is_number, may_be_none) for each in text.split(",")]
    else:
        steps = int(written[3])
        if not 2 <= steps <= MOST_VARIANTS:
            message = f"{steps:,} is no number of values; a range FROM..TO:N has 2 to {MOST_VARIANTS:,}"
            raise ValueError(message)
        ends = [_value(each.strip(), is_number, may_be_none=False) for each in written.groups()[:2]]
        found = list((_numbers if is_number else _durations)(ends[0], ends[1], steps))
    twice = next((each for each in found if found.count(each) > 1), None)
    if twice is not None:
        message = f"the value {twice} stands there twice; write each once, or fewer of the range"
        raise ValueError(message)
    return found


def _value(text: str, is_number: bool, may_be_none: bool) -> str:
    if may_be_none and text == _NONE:
        return text
    if is_number:
        try:
            return format(parse_decimal(text), "f")
        except ValueError:
            message = f"{text!r} is no number; write 1000..10000:10 or 1000,2000,5000"
            raise ValueError(message) from None
    return format_duration(parse_duration_ms(text))


def _numbers(first: str, last: str, steps: int) -> Iterator[str]:
    """Evenly spaced numbers, with as few digits as they need, or two more than they are written with."""
    begin, gap = Fraction(first), (Fraction(last) - Fraction(first)) / (steps - 1)
    least = max(digits_after_point(Decimal(end)) for end in (first, last))
    exact = [begin + gap * step for step in range(steps)]
    for digits in range(least, least + _MORE_DIGITS + 1):
        if all((each * 10**digits).denominator == 1 for each in exact):
            break
    return (format(Decimal(round(each * 10**digits)).scaleb(-digits), "f") for each in exact)


def _durations(first: str, last: str, steps: int) -> Iterator[str]:
    begin, end = parse_duration_ms(first), parse_duration_ms(last)
    gap = Fraction(end - begin, steps - 1)
    return (format_duration(round(begin + gap * step)) for step in range(steps))


def _ambiguity(when: str, feature: str) -> str | None:
    """Why it is not clear which number of a condition is meant; None if it is."""
    from buckets.expressions.parser import parse_expression

    count = sum(1 for _ in _comparisons(parse_expression(when), feature))
    if count == 1:
        return None
    how_often = "with no number" if not count else f"{count:,} times with a number"
    return f"the condition compares {feature} {how_often}; sweep one that is compared with one, as in {feature} > 5"


def _condition_with(when: str, feature: str, number: Decimal) -> str:
    """A condition with another number instead of the one that is compared with a feature."""
    from buckets.expressions.parser import parse_expression
    from buckets.expressions.sql_text import to_sql

    expression = parse_expression(when)
    (old,) = _comparisons(expression, feature)
    literal = Expression("number", value=number)
    operands = tuple(literal if _is_number(each) else each for each in old.operands)
    return to_sql(_replaced(expression, old, replace(old, operands=operands)))


def _comparisons(expression: Expression, feature: str) -> Iterator[Expression]:
    """The comparisons of a feature with a number as it is written."""
    operands = expression.operands
    has_feature = any(each.operator == "field" and each.value == feature for each in operands)
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
    return replace(expression, operands=tuple(_replaced(each, old, new) for each in expression.operands))

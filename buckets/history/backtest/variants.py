"""Variants: the different rules that sweeps ask for.

Each goes through the engine as a rule on trial, in the same pass as the rules themselves. It shares what they share, so
a thousand limits are found among the same sums, and it changes nothing for others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any

from pydantic import ValidationError

from buckets.errors import BucketsError
from buckets.history.backtest.condition_number import with_number
from buckets.history.backtest.sweep import NONE, Sweep
from buckets.rules.rule import VARIANT_MARK, Rule
from buckets.validation import first_fault


@dataclass(frozen=True)
class Combination:
    """One value of each sweep, in their order, and the variants whose alerts are together those of the combination."""

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


def swept_rules(sweeps: Sequence[Sweep], rules: Iterable[Rule]) -> SweptRules:
    """Make the variants that sweeps ask for.

    Raises:
        BucketsError: a value does not make a valid rule.
    """
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
    """Give a rule other values: on trial, for all keys, and with an id that no rule of a person has."""
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
        data |= {} if value == NONE else {"cooldown": value}
    elif head == "when":
        data["when"] = with_number(data["when"], last, Decimal(value))
    elif head:
        feature = data["features"][head]
        data["features"] = data["features"] | {head: feature | {"window": feature["window"] | {"length": value}}}
    else:
        data["window"] = data["window"] | {"length": value}

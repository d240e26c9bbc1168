"""Results as JSON lines, the form of `buckets evaluate`: times in epoch ms, decimals as strings, in arrival order."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, format_scaled
from buckets.outputs.columns import EVALUATIONS, OBJECTS
from buckets.rules.rule import value_scale
from buckets.rules.rule_set import RuleSet

_DROPPED = ("source", "source_order")


class JsonLines:
    """Writes rows of outputs as text."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        """Write results of a rule set.

        Args:
            rule_set: the rules that were in force.
            schema: the event schema, for the scales of values.
        """
        self._rule_index = {rule.rule_id: index for index, rule in enumerate(rule_set.rules)}
        of_measures = (rule for rule in rule_set.rules if rule.measure is not None)
        self._scale = {rule.rule_id: value_scale(rule, schema) for rule in of_measures}
        self._largest_scale = schema.largest_scale
        self._group_index = {group.name: index for index, group in enumerate(rule_set.groups)}

    def lines(self, output: str, table: pa.Table) -> Iterator[str]:
        """Yield the rows of an output, in arrival order, rules of one event in the order of the rule file."""
        for row in self.ordered(table):
            yield json.dumps(self.shown(output, row), ensure_ascii=False)

    def ordered(self, table: pa.Table) -> list[dict[str, Any]]:
        """Return the rows as plain data, times in ms, in that order."""
        return sorted(_plain_rows(table), key=self._order)

    def _order(self, row: dict[str, Any]) -> tuple[Any, ...]:
        rule = self._rule_index.get(row.get("rule_id", ""), 0)
        return row["source_order"], row["source"], row["position"], rule, self._group_index.get(row.get("group", ""), 0)

    def shown(self, output: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row as it is written: keys and events as objects, values with the digits of their rule."""
        shown = {name: value for name, value in row.items() if name not in _DROPPED}
        if output == EVALUATIONS:
            del shown["position"]
        for name in OBJECTS:
            if shown.get(name) is not None:
                shown[name] = json.loads(shown[name])
        scale = self._scale.get(row["rule_id"], 0) if "rule_id" in row else self._largest_scale
        for name, value in shown.items():
            if isinstance(value, Decimal):
                scaled = _unscaled(value) // 10 ** (self._largest_scale + AVERAGE_EXTRA_DIGITS - scale)
                shown[name] = format_scaled(scaled, scale)
        return shown


def _unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as an integer."""
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries, times as integers."""
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    yield from table.to_pylist()

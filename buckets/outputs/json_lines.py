"""Results as JSON lines, the form of `buckets evaluate`: times in epoch ms, decimals as strings, in arrival order."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled
from buckets.outputs import columns
from buckets.rules.rule import value_scale
from buckets.rules.rule_set import RuleSet

_DROPPED = ("source", "source_order")
_VALUES = ("value", "lower", "upper")


class JsonLines:
    """Writes rows of outputs as text."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        """Write results of a rule set.

        Args:
            rule_set: the rules that were in force.
            schema: the event schema, for the scales of values.
        """
        self._rule_index = {rule.rule_id: index for index, rule in enumerate(rule_set.rules)}
        self._scale = {rule.rule_id: value_scale(rule, schema) for rule in rule_set.rules}
        self._value_digits = schema.largest_scale + 6
        self._group_index = {group.name: index for index, group in enumerate(rule_set.groups)}

    def lines(self, output: str, table: pa.Table) -> Iterator[str]:
        """The rows of an output, in arrival order, rules of one event in the order of the rule file."""
        for row in self.ordered(table):
            yield json.dumps(self.shown(output, row), ensure_ascii=False)

    def ordered(self, table: pa.Table) -> list[dict[str, Any]]:
        """The rows as plain data, times in ms, in that order."""
        return sorted(_plain_rows(table), key=self._order)

    def _order(self, row: dict[str, Any]) -> tuple[Any, ...]:
        rule = self._rule_index.get(row.get("rule_id", ""), 0)
        return row["source_order"], row["source"], row["position"], rule, self._group_index.get(row.get("group", ""), 0)

    def shown(self, output: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row as it is written: its key and event as objects, its values with the digits of their rule."""
        shown = {name: value for name, value in row.items() if name not in _DROPPED}
        if output == columns.EVALUATIONS:
            del shown["position"]
        if "key" in shown:
            shown["key"] = json.loads(shown["key"])
        if "event" in shown:
            shown["event"] = json.loads(shown["event"])
        if shown.get("terms") is not None:
            shown["terms"] = json.loads(shown["terms"])
        for name in _VALUES:
            if shown.get(name) is not None:
                scale = self._scale[row["rule_id"]]
                scaled = _unscaled(shown[name]) // 10 ** (self._value_digits - scale)
                shown[name] = format_scaled(scaled, scale)
        return shown


def _unscaled(value: Decimal) -> int:
    """The digits of a decimal as an integer."""
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries, times as integers."""
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    yield from table.to_pylist()

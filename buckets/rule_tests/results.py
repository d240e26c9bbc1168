"""Looks up the results of a test by event and rule, and puts them into words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.evaluation import Results
from buckets.moment import exact_time_text, moment_ms
from buckets.numbers.fixed_point import readable
from buckets.printable import counted, quoted
from buckets.rule_tests.given_events import GivenEvents
from buckets.rules.condition import condition_words
from buckets.rules.filter import describe_filter
from buckets.rules.rule import Rule

Row = dict[str, Any]
NOT_EVALUATED = {
    "late_events": "is late",
    "duplicates": "has already arrived",
    "collisions_not_kept": "is not kept, since another event has its time",
    "dead_letters": "is not a valid event",
    "no_key": "has no key",
}
"""Outputs for events that are not evaluated, with the meaning of each."""


@dataclass(frozen=True)
class RuleTestResults:
    """The results of a test."""

    given: GivenEvents
    rules: Mapping[str, Rule]
    tables: Results

    @cached_property
    def alerts(self) -> list[Row]:
        """The alerts, in arrival order."""
        return _alerts(self.tables.alerts)

    @cached_property
    def held_alerts(self) -> list[Row]:
        """The alerts that policies have held back, in arrival order."""
        return _alerts(self.tables.held_alerts)

    @cached_property
    def evaluations(self) -> dict[tuple[int, str], Row]:
        """The evaluations by event and rule."""
        rows = self.tables.evaluations.to_pylist()
        return {(row["position"], row["rule_id"]): row for row in rows}

    @cached_property
    def not_evaluated(self) -> dict[str, dict[int, Row]]:
        """By output, the events that were not evaluated, at least in some group."""
        collisions = self.tables.collisions
        tables: dict[str, pa.Table] = {
            "late_events": self.tables.late_events,
            "duplicates": self.tables.duplicates,
            "collisions_not_kept": collisions.filter(pc.invert(collisions["kept"])),
            "dead_letters": self.tables.dead_letters,
        }
        rows = {name: {row["position"]: row for row in table.to_pylist()} for name, table in tables.items()}
        lacking: dict[int, Row] = {}  # events that some rule does not see, with the missing grouping field
        for field in dict.fromkeys(
            name for rule in self.rules.values() if rule.on == "events" for name in rule.group_by
        ):
            for position in self.given.lacking(field):
                if position not in rows["dead_letters"]:
                    lacking.setdefault(position, {"field": field})
        return rows | {"no_key": lacking}

    def event(self, position: int) -> str:
        """Return the name of an event in reports."""
        name = self.given.ids[position]
        return f"event {position + 1}" if name is None else f"event {position + 1} ({quoted(name)})"

    def why_not_evaluated(self, position: int, output: str) -> str:
        """Explain why an event was not evaluated."""
        row, why = self.not_evaluated[output][position], NOT_EVALUATED[output]
        if output == "dead_letters":
            return f"{why}: {row['reason']}"
        if output == "no_key":
            return f"{why}: {row['field']} is missing or null, and a rule groups by it"
        if output == "late_events":
            return f"{why}: it is at {_moment(row['event_time'])}, the latest of its key at {_moment(row['clock'])}"
        return why

    def found(self, position: int, rule_id: str) -> str:
        """Describe the result of a rule at an event."""
        rule, row = self.rules[rule_id], self.evaluations.get((position, rule_id))
        if row is None:
            outputs = [name for name, rows in self.not_evaluated.items() if position in rows]
            if outputs:
                return f"the event {self.why_not_evaluated(position, outputs[0])}"
            where = f": where {describe_filter(rule.where)}" if rule.where else ""
            return f"the rule does not apply to the event{where}"
        fired = "fired" if row["fired"] else "did not fire"
        if rule.is_short:
            return f"it {fired}: {_simple(rule, row)}"
        values = ", ".join(f"{name} {shown(value)}" for name, value in terms_of(row).items())
        return f"it {fired}: {condition_words(rule.when)} is {'true' if row['fired'] else 'not true'} with {values}"

    def fired(self) -> str:
        """Summarise which rules fired at which events."""
        shown = [f"{row['rule_id']} at {self.event(row['position'])}" for row in self.alerts[:_MOST_SHOWN]]
        more = len(self.alerts) - len(shown)
        return "; ".join(shown) + (f"; and {more:,} more" if more else "") if shown else "nothing"


_MOST_SHOWN = 5


def terms_of(row: Row) -> dict[str, Any]:
    """Read the values of the features of an evaluation or alert, by name."""
    return {term["name"]: _value_of(term) for term in json.loads(row["terms"] or "[]")}


def _value_of(term: Row) -> Any:
    value = term["value"]
    return Decimal(value) if isinstance(value, str) and "type" not in term else value


def _alerts(table: pa.Table) -> list[Row]:
    alerts: list[Row] = table.to_pylist()
    for alert in alerts:  # In tests, numbers in keys are text.
        key = json.loads(alert["key"])
        alert["key"] = {name: value if isinstance(value, bool) else str(value) for name, value in key.items()}
    return alerts


def shown(value: Any) -> str:
    """Return a value of a result or an expectation for a report."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return readable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in value.items())
    return quoted(str(value))


def _moment(moment: datetime) -> str:
    return exact_time_text(moment_ms(moment))


def _simple(rule: Rule, row: Row) -> str:
    """Describe the value of a rule with one aggregate, its window, and the distance to its limit."""
    assert rule.limit is not None
    limit, value, end = rule.limit, row["value"], row["event_time"]
    if value is None:
        return "no event in its window has a value"
    bounds = "" if row["exact"] else f" (between {readable(row['lower'])} and {readable(row['upper'])})"
    events = counted(row["count"], "event")
    window = rule.longest_window
    (start_ms,) = window.starts_ms(np.array([moment_ms(end)])).tolist()
    until = _moment(end - timedelta(milliseconds=window.offset_ms))
    within = f"in {window.words.replace('the last', 'the')} from {exact_time_text(start_ms)} to {until}"
    comparison = f"{readable(value)} {limit.operator} {readable(limit.value)}"
    away = f"{readable(abs(value - limit.value))} from the limit"
    warm = "" if row["warm"] else "; its window reaches back beyond what is kept"
    return f"{comparison} is {shown(row['fired'])}{bounds}, {away}, of {events} {within}{warm}"


def rules_in_words(rules: Sequence[str]) -> str:
    """Return the names of rules as part of a sentence."""
    return ", ".join(map(quoted, rules))

"""The answer to a call, from the results for its payment: the decision, alerts in published form, features."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from buckets.engine.results.feature_table import OUTCOMES, outcomes_of
from buckets.engine.values.feature_rules import FEATURES
from buckets.events.arrivals import declared_fields
from buckets.outputs import columns
from buckets.rules.rule import SEVERITIES
from buckets.serve.replica import ScoredMessages

_OF_OUTCOME = (columns.COLLISIONS, columns.LATE_EVENTS, columns.DUPLICATES, columns.DEAD_LETTERS)
_ALERTS = (columns.ALERTS, columns.HELD_ALERTS)
EVALUATED, DUPLICATE, DEAD_LETTER = "evaluated", "duplicate", "dead_letter"
"""Outcomes of a payment, as tables of features have them; one that no group's filter lets through is evaluated too."""


@dataclass
class CallAnswer:
    """The results for a payment."""

    ruleset_version: int
    partition: int | None  # in its topic; None if it was not written
    offset: int | None
    event_id: str | None
    event_time: str | None = None  # identifies the event together with its id
    outcome: str = EVALUATED  # its outcome; if groups differ, the one furthest from `evaluated`
    reason: str = ""  # why it is not an event
    alerts: list[dict[str, Any]] = field(default_factory=list)  # in published form
    held: list[dict[str, Any]] = field(default_factory=list)  # alerts that policies hold back, in published form
    features: dict[str, dict[str, Any]] = field(default_factory=dict)  # by rule and name: value, exact, warm
    as_of: dict[str, int] = field(default_factory=dict)  # by partition, how far it had been read
    list_versions: dict[str, int] = field(default_factory=dict)  # by list, the version that rules used
    is_repeated: bool = False  # whether it repeats the answer to an earlier call with this id

    def to_json(self, wanted: str | None) -> dict[str, Any]:
        """Return the answer as plain data, with the features whose names fit a pattern."""
        severities = [alert["severity"] for alert in self.alerts if alert.get("severity") is not None]
        decision = {
            "fired": [alert["rule_id"] for alert in self.alerts],
            "severity": max(severities, key=SEVERITIES.index, default=None),
            "score": sum(alert.get("score") or 0 for alert in self.alerts),
            "held": [alert["rule_id"] for alert in self.held],
        }
        shown: dict[str, Any] = {"decision": decision, "outcome": self.outcome, "alerts": self.alerts}
        if wanted is not None:
            shown["features"] = {name: value for name, value in self.features.items() if fnmatchcase(name, wanted)}
        place = {"partition": self.partition, "offset": self.offset, "as_of": self.as_of}
        versions = {"ruleset_version": self.ruleset_version, "list_versions": self.list_versions}
        return shown | versions | place | {"repeated": self.is_repeated}

    @property
    def digest(self) -> int:
        """A hash of the results that must be equal wherever the payment is scored."""
        ids = [sorted(alert["alert_id"] for alert in alerts) for alerts in (self.alerts, self.held)]
        values = sorted(repr((alert["alert_id"], alert["value"], alert["terms"])) for alert in self.alerts)
        return hash((self.outcome, repr(ids), *values))


def answers(scored: ScoredMessages, offsets: Collection[int], decided_ms: int, features: bool) -> dict[int, CallAnswer]:
    """Return the answers for some of the messages that were scored together, by offset."""
    scored_by, results = scored.scored_by, scored.results.payloads
    partition = scored.messages[0].place[0]
    schema = scored_by.terms.event_schema
    declared = declared_fields(scored.arrivals, schema)
    ids, times = declared[schema.event_id], declared[schema.event_time.field]
    rows = {message.offset: row for row, message in enumerate(scored.messages) if message.offset in offsets}
    found = {
        offset: CallAnswer(
            scored_by.rules,
            partition,
            offset,
            _text(ids[row].as_py()),
            _text(times[row].as_py()),
            list_versions=dict(scored_by.lists),
        )
        for offset, row in rows.items()
    }
    for output in _ALERTS:
        if output in results:
            table = scored_by.decoder.table(output, results[output])
            for message in scored_by.messages.of(output, table, decided_ms):
                shown = json.loads(message.value)
                if shown["position"] in found:
                    answer = found[shown["position"]]
                    (answer.alerts if output == columns.ALERTS else answer.held).append(shown)
    for offset, outcome in _outcomes(scored):
        if offset in found:
            found[offset].outcome = outcome
    if columns.DEAD_LETTERS in results:
        table = scored_by.decoder.table(columns.DEAD_LETTERS, results[columns.DEAD_LETTERS])
        for offset, reason in zip(table["position"].to_pylist(), table["reason"].to_pylist(), strict=True):
            if offset in found:
                found[offset].reason = reason
    if features and FEATURES in results:
        _add_features(scored, rows, found)
    return found


def _outcomes(scored: ScoredMessages) -> Iterator[tuple[int, str]]:
    """Yield the offsets of messages with another outcome than plain evaluation, with that outcome."""
    results = scored.results.payloads
    given = {output: results[output] for output in _OF_OUTCOME if output in results}
    if given:
        first, last = scored.messages[0].offset, scored.messages[-1].offset
        outcomes = outcomes_of(given, {}, first, last - first + 1)
        yield from ((first + int(at), OUTCOMES[outcomes[at]]) for at in np.flatnonzero(outcomes))


def _add_features(scored: ScoredMessages, rows: Mapping[int, int], found: Mapping[int, CallAnswer]) -> None:
    first, last = scored.messages[0].offset, scored.messages[-1].offset
    given = {FEATURES: scored.results.payloads[FEATURES]}
    table = scored.scored_by.features.beside(given, last - first + 1, first).take(pa.array([at - first for at in rows]))
    values = dict(zip(table.column_names, (column.to_pylist() for column in table.columns), strict=True))
    for row, offset in enumerate(rows):
        of_row = {name: _plain(column[row]) for name, column in values.items()}
        for name in of_row:
            if f"{name}.exact" in of_row and of_row[f"{name}.exact"] is not None:
                flags = {flag: of_row[f"{name}.{flag}"] for flag in ("exact", "warm")}
                found[offset].features[name] = {"value": of_row[name], **flags}


def _plain(value: Any) -> Any:
    return format(value, "f") if isinstance(value, Decimal) else value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

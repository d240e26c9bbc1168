"""What a job has recorded of a rule at an event; where it has recorded nothing, what the engine itself finds again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from buckets.history.archive import ARRIVAL, BATCH, OWN_COLUMNS
from buckets.history.explanation import Outcome, Recorded
from buckets.history.explanation_key import KeyHistory, Target
from buckets.history.explanation_past import Past
from buckets.history.explanation_results import OF_ALERTS, Row, sql_moment, sql_value
from buckets.outputs import columns
from buckets.rules.rule import Rule

_OUTCOMES: Mapping[str, Outcome] = {
    columns.ALERTS: "alert",
    columns.SHADOW_ALERTS: "shadow alert",
    columns.HELD_ALERTS: "held back",
}


@dataclass(frozen=True)
class RecordedResult:
    """A result of a rule at an event.

    Attributes:
        outcome: what came of it.
        row: an alert, or an evaluation.
        features: the values, by name.
        origin: where it was found.
    """

    outcome: Outcome
    row: Row
    features: Mapping[str, Recorded]
    origin: str


def recorded_alert(output: str, row: Row) -> RecordedResult:
    """A row of an output of alerts."""
    return RecordedResult(_OUTCOMES[output], row, _features(row), f"recorded in table {output}")


def find_recorded(
    past: Past, rule: Rule, target: Target, event: tuple[str, int], histories: list[KeyHistory], from_ms: int
) -> RecordedResult | None:
    """What is recorded of a rule at an event, or what the engine finds of it again.

    Args:
        past: the past.
        rule: the rule.
        target: the event, or the alert as an event.
        event: the event's id and time.
        histories: of the keys of the rule's groups.
        from_ms: how far back its windows reach.
    """
    for output in OF_ALERTS:
        rows = [row for row in past.results.of_event(output, rule.rule_id, *event) if _is_of(row, target)]
        if rows:
            return recorded_alert(output, rows[0])
    rows = past.results.of_event(columns.EVALUATIONS, rule.rule_id, target.name, target.time_ms)
    if rows:
        return _of_evaluation(rows[0], "recorded in table evaluations")
    if target.on == "alerts":
        return None
    row = _scored_again(past, rule, target, histories, from_ms)
    return None if row is None else _of_evaluation(row, "not recorded: scored again by the engine in memory")


def _is_of(row: Row, target: Target) -> bool:
    """Whether an alert is of the target: of an event that raised several alerts, a rule over alerts has several."""
    if target.on == "events":
        return True
    event = json.loads(row["event"]) if isinstance(row["event"], str) else row["event"]
    return bool(event.get("alert_id") == target.name)


def _of_evaluation(row: Row, origin: str) -> RecordedResult:
    outcome: Outcome = "alert" if row["fired"] else "did not fire"
    return RecordedResult(outcome, row, _features(row), origin)


def _features(row: Row) -> dict[str, Recorded]:
    """The values of an alert or an evaluation."""
    if row.get("value") is not None:
        lower, upper = str(row["lower"]), str(row["upper"])
        return {"value": Recorded(str(row["value"]), lower, upper, bool(row["exact"]), bool(row["warm"]))}
    terms: list[dict[str, Any]] = json.loads(row["terms"]) if isinstance(row["terms"], str) else row["terms"] or []
    return {
        term["name"]: Recorded(term["value"], term.get("lower"), term.get("upper"), term["exact"], term["warm"])
        for term in terms
    }


def _scored_again(
    past: Past, rule: Rule, target: Target, histories: list[KeyHistory], from_ms: int
) -> dict[str, Any] | None:
    """The evaluation of a rule at an event by the engine, over the events of its keys alone."""
    from buckets.history.scoring import score_pieces

    source, _, position = target.arrivals.origins[0]
    found = None
    for scored in score_pieces(_pieces(past, target, histories, from_ms), evaluations=True):
        for row in scored.table(columns.EVALUATIONS).to_pylist():
            is_event = (row["source"], row["position"]) == (source, position) if "source" in row else True
            if row["rule_id"] == rule.rule_id and row["event_id"] == target.name and is_event:
                found = row
    return found


def _pieces(past: Past, target: Target, histories: list[KeyHistory], from_ms: int) -> Iterator[Any]:
    """What has arrived of some keys up to an event, batch by batch."""
    from buckets.history.scoring import Piece

    schema = target.arrivals.schema
    keys = [
        " and ".join(f'"{field}" = {sql_value(target.value(field))}' for field in history.group.fields) or "true"
        for history in histories
    ]
    tests = [f"({') or ('.join(keys)})", f'"{schema.event_time.field}" >= {sql_moment(from_ms)}']
    tests.append(f'"{ARRIVAL}" <= {target.number}')
    rows: pa.Table = past.rows(tests, [*OWN_COLUMNS.names, *schema.field_names]).sort_by(ARRIVAL).combine_chunks()
    batches = rows[BATCH].to_numpy()
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        batch_id = int(batches[start])
        yield Piece(rows.slice(start, end - start), past.rule_set(batch_id), past.terms(batch_id), past.lists(batch_id))

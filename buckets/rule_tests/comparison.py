"""What is expected of a test against what came out of it: each mismatch in a plain line, with its line in the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.rule_files.rule_tests import Expected, ExpectedAlert, ExpectedValue
from buckets.rule_tests.given_events import Fault
from buckets.rule_tests.results import NOT_EVALUATED, Row, RuleTestResults, rules_in_words, shown, terms_of
from buckets.validation import Location

_STEPS_BY_RULE = 3  # Steps to an entry that stands below the name of its rule
_NOT_COLUMNS = frozenset({"event", "rule", "features"})
"""Fields of an expectation that are not compared with a column of the results."""


@dataclass(frozen=True)
class Mismatch:
    """Something that came out otherwise than expected."""

    location: Location  # of the expectation, or of the event that nothing is said of, in the test
    text: str  # what was expected and what came, on one line


@dataclass(frozen=True)
class _Entry:
    """An expectation of one event and rule."""

    location: Location
    outcome: ExpectedAlert | ExpectedValue
    positions: frozenset[int]
    rule_id: str


def mismatches(expected: Expected, results: RuleTestResults, fault: Fault) -> list[Mismatch]:
    """Return all mismatches between what is expected and what came out.

    Raises:
        BucketsError: an expectation is of an event or a feature that there is not, or stands there twice.
    """
    alerts = _entries("alerts", expected, results, fault)
    held = _entries("held_alerts", expected, results, fault)
    values = _entries("values", expected, results, fault)
    wrong = list(_of_events(expected, results, fault))
    if expected.alerts is not None:
        wrong += _of_alerts(alerts, results.alerts, "alerts", expected, results)
    if expected.held_alerts is not None:
        wrong += _of_alerts(held, results.held_alerts, "held_alerts", expected, results)
    for entry in values:
        wrong += _of_value(entry, results)
    return wrong


def _entries(name: str, expected: Expected, results: RuleTestResults, fault: Fault) -> list[_Entry]:
    entries: list[_Entry] = []
    seen: set[tuple[frozenset[int], str]] = set()
    for inside, outcome in expected.outcomes(name):
        location: Location = ("expect", *inside)
        if len(inside) == _STEPS_BY_RULE and outcome.rule != inside[1]:
            raise fault((*location, "rule"), f"stands below rule {inside[1]!r}; leave it out")
        positions = _positions(outcome.event, results, (*location, "event"), fault)
        if outcome.rule is None and len(results.rules) > 1:
            raise fault(location, f"needs `rule`; the test has {rules_in_words(list(results.rules))}")
        rule_id = next(iter(results.rules)) if outcome.rule is None else outcome.rule
        if rule_id not in results.rules:
            reason = f"{rule_id!r} is not among the rules of the test: {rules_in_words(list(results.rules))}"
            raise fault((*location, "rule"), reason)
        if (positions, rule_id) in seen:
            raise fault(location, f"event {outcome.event} and rule {rule_id!r} stand here twice; write them once")
        seen.add((positions, rule_id))
        _check_fits(outcome, results, rule_id, location, fault)
        entries.append(_Entry(location, outcome, positions, rule_id))
    return entries


def _positions(reference: str, results: RuleTestResults, location: Location, fault: Fault) -> frozenset[int]:
    positions = results.given.positions(reference)
    if not positions:
        reason = f"there is no event {reference!r}; {len(results.given.ids):,} are given, numbered from 1"
        raise fault(location, reason)
    return positions


def _check_fits(
    outcome: ExpectedAlert | ExpectedValue, results: RuleTestResults, rule_id: str, location: Location, fault: Fault
) -> None:
    """See that only what the rule has is expected of it."""
    rule = results.rules[rule_id]
    unknown = next((name for name in outcome.features if rule.is_short or name not in rule.features), None)
    if unknown is not None:
        has = "has no features; write `value`" if rule.is_short else f"has the features {', '.join(rule.features)}"
        raise fault((*location, "features", unknown), f"is no feature; rule {rule_id!r} {has}")
    wrong = next((name for name in _OF_ONE_AGGREGATE if name in outcome.model_fields_set), None)
    if not rule.is_short and wrong is not None:
        reason = f"rule {rule_id!r} has features and no value of its own; write `features: {{NAME: VALUE}}`"
        raise fault((*location, wrong), reason)


_OF_ONE_AGGREGATE = ("value", "lower", "upper", "count")


def _of_events(expected: Expected, results: RuleTestResults, fault: Fault) -> Iterator[Mismatch]:
    """Yield a mismatch for each event that was not evaluated though nothing is said of it, and the other way round."""
    for output, rows in results.not_evaluated.items():
        covered: set[int] = set()
        for index, reference in enumerate(getattr(expected, output)):
            location: Location = ("expect", output, index)
            positions = _positions(reference, results, location, fault)
            covered |= positions
            if not positions & rows.keys():
                event = results.event(min(positions))
                yield Mismatch(location, f"expected that {event} {NOT_EVALUATED[output]}; it is not so")
        for position in sorted(rows.keys() - covered):
            why = f"{results.event(position)} {results.why_not_evaluated(position, output)}"
            text = f"{why}; if it shall be so, expect it: `{output}: [{position + 1}]`"
            yield Mismatch(results.given.origins[position], text)


def _of_alerts(
    entries: Sequence[_Entry], rows: Sequence[Row], name: str, expected: Expected, results: RuleTestResults
) -> Iterator[Mismatch]:
    """Yield a mismatch for each alert of an output that is missing, came unexpectedly or has other fields."""
    compared, what = expected.by_rule(name), _ALERTS[name]
    left = [row for row in rows if not compared or row["rule_id"] in compared]
    for entry in entries:
        alert = next(
            (row for row in left if row["rule_id"] == entry.rule_id and row["position"] in entry.positions), None
        )
        if alert is None:
            position = min(entry.positions)
            missing = f"expected {what} of {rules_in_words([entry.rule_id])} at {results.event(position)}"
            text = f"{missing}; {results.found(position, entry.rule_id)}; what fired: {results.fired()}"
            yield Mismatch(entry.location, text)
            continue
        left.remove(alert)
        yield from _of_fields(entry, alert, f"{_NOUNS[name]} of", results)
    for alert in left:
        position, rule_id = alert["position"], alert["rule_id"]
        text = f"unexpected {_NOUNS[name]} of {rules_in_words([rule_id])} at {results.event(position)}"
        where: Location = ("expect", name, rule_id) if compared else ("expect", name)
        yield Mismatch(where, f"{text}; {results.found(position, rule_id)}")


_NOUNS = {"alerts": "alert", "held_alerts": "alert that is held back"}
_ALERTS = {name: f"an {noun}" for name, noun in _NOUNS.items()}


def _of_value(entry: _Entry, results: RuleTestResults) -> Iterator[Mismatch]:
    rows = [results.evaluations.get((position, entry.rule_id)) for position in sorted(entry.positions)]
    row = next((row for row in rows if row is not None), None)
    if row is None:
        position = min(entry.positions)
        name = f"{rules_in_words([entry.rule_id])} at {results.event(position)}"
        text = f"expected a value of {name}; {results.found(position, entry.rule_id)}"
        yield Mismatch(entry.location, text)
        return
    yield from _of_fields(entry, row, "value of", results)


def _of_fields(entry: _Entry, row: Row, what: str, results: RuleTestResults) -> Iterator[Mismatch]:
    """Yield a mismatch if fields of an expectation differ from a row of the results."""
    name = f"{what} {rules_in_words([entry.rule_id])} at {results.event(row['position'])}"
    terms = terms_of(row) if entry.outcome.features else {}
    pairs: list[tuple[Location, Any, Any]] = [
        ((field,), getattr(entry.outcome, field), row[field])
        for field in type(entry.outcome).model_fields
        if field in entry.outcome.model_fields_set - _NOT_COLUMNS
    ]
    pairs += [(("features", feature), value, terms[feature]) for feature, value in entry.outcome.features.items()]
    wrong = [(location, wanted, came) for location, wanted, came in pairs if wanted != came]
    if wrong:
        fields = "; ".join(f"expected {at[-1]} {shown(wanted)}, came {shown(came)}" for at, wanted, came in wrong)
        location = (*entry.location, *wrong[0][0])
        yield Mismatch(location, f"{name}: {fields}; {results.found(row['position'], entry.rule_id)}")

"""Runs the tests of a rule file: each on its own events, with nothing before them; and compares what came out.

What is operated, not written, plays no part: a rule is tested as if it were ACTIVE for all keys and not snoozed. So the
tests of a draft still hold when it is in force.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.config.lists import list_fault
from buckets.errors import BucketsError
from buckets.evaluation import Evaluator
from buckets.events.schema import EventSchema
from buckets.lists.index import ListIndex, Lists
from buckets.lists.list_file import base_of
from buckets.rule_files.rule_tests import Expected, ExpectedAlert, ExpectedValue, RuleTest
from buckets.rule_files.yaml_rules import RuleFile
from buckets.rule_tests.given_events import Fault, as_text, given_events, say_nothing
from buckets.rule_tests.results import NOT_EVALUATED, Row, RuleTestResults, rules_in_words, shown, terms_of
from buckets.rules.group import canonical_group_id
from buckets.rules.rule import WHOLE_SHARE, Rule
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
    location: Location
    outcome: ExpectedAlert | ExpectedValue
    positions: frozenset[int]
    rule_id: str


def mismatches(expected: Expected, results: RuleTestResults, fault: Fault) -> list[Mismatch]:
    """Return all mismatches between what is expected and what came out.

    BucketsError if an expectation is of an event or a feature that there is not, or stands there twice.
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


@dataclass(frozen=True)
class Failure:
    """Something that came out otherwise than expected."""

    line: int
    text: str


@dataclass(frozen=True)
class RuleTestOutcome:
    """What became of a test."""

    name: str  # of the test
    file: str  # the rule file
    line: int  # of the test in it
    rules: tuple[str, ...]  # the rules that were evaluated; none if they are all deleted, and the test was not run
    failures: tuple[Failure, ...]  # what came out otherwise than expected

    @property
    def status(self) -> str:
        """`passed`, `failed`, or `skipped` where the rules are deleted."""
        if not self.rules:
            return "skipped"
        return "failed" if self.failures else "passed"


class RuleTester:
    """Runs the tests of one rule file."""

    def __init__(self, file: RuleFile, schema: EventSchema, engine: EngineSettings) -> None:
        """Test the rules of `file` under the settings of a job."""
        self._file = file
        self._schema = schema
        self._engine = engine
        self._rules = {rule.rule_id: _in_force(rule) for rule in file.rules if rule.state != "DELETE"}
        self._evaluators: dict[tuple[str, ...], Evaluator] = {}

    def run(self, index: int) -> RuleTestOutcome:
        """Run the test with this index; BucketsError names the line that does not fit the event schema or the rules."""
        test, location = self._file.tests[index], ("tests", index)

        def fault(inside: Location, reason: str) -> BucketsError:
            return self._file.fault((*location, *inside), reason)

        line = self._file.line(location)
        rules = {rule_id: self._rules[rule_id] for rule_id in self.rules_of(test) if rule_id in self._rules}
        if not rules or any(rule_id not in self._rules for _, rule_id in test.expect.named_rules()):
            return RuleTestOutcome(test.name, str(self._file.path), line, (), ())
        given = given_events(test, self._schema, self._file.path.parent, fault)
        lists = _lists(test, rules.values(), fault)
        recorded = self._evaluator(tuple(rules), lists).recorded(given.table, say_nothing)
        results = RuleTestResults(given, rules, recorded)
        failures = (
            Failure(self._file.line((*location, *mismatch.location)), mismatch.text)
            for mismatch in mismatches(test.expect, results, fault)
        )
        return RuleTestOutcome(test.name, str(self._file.path), line, tuple(rules), tuple(failures))

    def rules_of(self, test: RuleTest) -> tuple[str, ...]:
        """Return the rules that a test is about."""
        return test.rules or tuple(rule.rule_id for rule in self._file.rules)

    def _evaluator(self, rule_ids: tuple[str, ...], lists: Lists) -> Evaluator:
        """Return an evaluator of these rules without events; without lists they are checked and planned once."""
        known = None if lists else self._evaluators.get(rule_ids)
        if known is not None:
            return known.fresh()
        rules = [self._rules[rule_id] for rule_id in rule_ids]
        made = Evaluator(rules, self._schema.with_written_ids, engine_of(self._engine, rules, self._schema), lists)
        if not lists:
            self._evaluators[rule_ids] = made.fresh()
        return made


def _lists(test: RuleTest, rules: Iterable[Rule], fault: Fault) -> Lists:
    """Return the lists of a test; all into which its rules look are among them."""
    lists = {}
    for name, entries in test.lists.items():
        names = dict.fromkeys(["key", *(field for entry in entries for field in entry)])
        columns = {field: pa.array([as_text(entry.get(field)) for entry in entries], pa.string()) for field in names}
        try:
            lists[name] = ListIndex(base_of(pa.table(columns), "key", f"list {name!r}"))
        except BucketsError as error:
            raise fault(("lists", name), error.message) from None
    for rule in rules:
        missing = list_fault(rule, lists)
        if missing is not None:
            raise fault(("lists",) if test.lists else (), f"rule {rule.rule_id!r}: {missing}")
    return lists


def _in_force(rule: Rule) -> Rule:
    return rule.model_copy(update={"state": "ACTIVE", "rollout": WHOLE_SHARE, "snoozes": ()})


def engine_of(engine: EngineSettings, rules: Iterable[Rule], schema: EventSchema) -> EngineSettings:
    """Return the settings of a job for some of its rules, with one shard: results do not depend on shards."""
    groups = {canonical_group_id(fields, where, schema) for rule in rules for fields, where in rule.groupings()}
    own = tuple(group for group in engine.precision.groups if group.group_id(schema) in groups)
    return engine.model_copy(update={"shards": 1, "precision": engine.precision.model_copy(update={"groups": own})})


def untested(file: RuleFile) -> list[str]:
    """Return the rules of a file that no test is about; deleted ones need none."""
    everything = {rule.rule_id for rule in file.rules}
    tested: set[str] = set().union(*(test.rules or everything for test in file.tests))
    return [rule.rule_id for rule in file.rules if rule.rule_id not in tested and rule.state != "DELETE"]

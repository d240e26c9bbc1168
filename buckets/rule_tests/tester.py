"""Runs the tests of a rule file, each on its own events with an empty history, and compares the results.

Operational settings are ignored: a rule is tested as if it were ACTIVE for all keys and not snoozed. So the tests of a
draft still hold when it is in force.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.config.lists import list_fault
from buckets.errors import BucketsError
from buckets.evaluation import Evaluator
from buckets.events.schema import EventSchema
from buckets.lists.index import ListIndex, Lists
from buckets.lists.list_file import base_of
from buckets.numbers.fixed_point import parse_decimal
from buckets.rule_files.rule_tests import Expected, ExpectedAlert, ExpectedValue, RuleTest
from buckets.rule_files.yaml_rules import RuleFile
from buckets.rule_tests.given_events import Fault, as_text, given_events
from buckets.rule_tests.results import NOT_EVALUATED, Row, RuleTestResults, rules_in_words, shown, terms_of
from buckets.rules.group import canonical_group_id
from buckets.rules.rule import WHOLE_SHARE, Rule
from buckets.rules.written_lists import linked
from buckets.validation import Location

_STEPS_BY_RULE = 3  # Steps to an entry below the name of its rule
_NOT_COLUMNS = frozenset({"event", "rule", "features"})
"""Fields of an expectation that are not compared with a column of the results."""


_NOUNS = {"alerts": "alert", "held_alerts": "alert that is held back"}
_OF_ONE_AGGREGATE = ("value", "lower", "upper", "count")
Mismatch = tuple[Location, str]
"""A result that differs from an expectation, and the location of the expectation, or the event, in the test."""


class _Entry(NamedTuple):
    location: Location
    outcome: ExpectedAlert | ExpectedValue
    positions: frozenset[int]
    rule_id: str


@dataclass(frozen=True)
class _Comparison:
    """Compares expected and actual results; `fault` makes errors for invalid expectations."""

    expected: Expected
    results: RuleTestResults
    fault: Fault

    def mismatches(self) -> Iterator[Mismatch]:
        entries = {name: list(self._entries(name)) for name in (*_NOUNS, "values")}
        yield from self._of_events()
        for name in _NOUNS:
            if getattr(self.expected, name) is not None:
                yield from self._of_alerts(name, entries[name], getattr(self.results, name))
        for entry in entries["values"]:
            rows = [self.results.evaluations.get((position, entry.rule_id)) for position in sorted(entry.positions)]
            row = next((row for row in rows if row is not None), None)
            if row is not None:
                yield from self._of_fields(entry, row, "value of")
            else:
                yield entry.location, f"expected a value of {self._rule_at(entry.rule_id, min(entry.positions))}"

    def _entries(self, name: str) -> Iterator[_Entry]:
        seen: set[tuple[frozenset[int], str]] = set()
        rules = self.results.rules
        for inside, outcome in self.expected.outcomes(name):
            location: Location = ("expect", *inside)
            if len(inside) == _STEPS_BY_RULE and outcome.rule != inside[1]:
                raise self.fault((*location, "rule"), f"stands below rule {inside[1]!r}; leave it out")
            positions = self._positions(outcome.event, (*location, "event"))
            if outcome.rule is None and len(rules) > 1:
                raise self.fault(location, f"needs `rule`; the test has {rules_in_words(list(rules))}")
            rule_id = next(iter(rules)) if outcome.rule is None else outcome.rule
            if rule_id not in rules:
                reason = f"{rule_id!r} is not among the rules of the test: {rules_in_words(list(rules))}"
                raise self.fault((*location, "rule"), reason)
            if (positions, rule_id) in seen:
                reason = f"event {outcome.event} and rule {rule_id!r} stand here twice; write them once"
                raise self.fault(location, reason)
            seen.add((positions, rule_id))
            self._check_fits(outcome, rules[rule_id], location)
            yield _Entry(location, outcome, positions, rule_id)

    def _positions(self, reference: str, location: Location) -> frozenset[int]:
        positions = self.results.given.positions(reference)
        if not positions:
            given = len(self.results.given.ids)
            raise self.fault(location, f"there is no event {reference!r}; {given:,} are given, numbered from 1")
        return positions

    def _check_fits(self, outcome: ExpectedAlert | ExpectedValue, rule: Rule, location: Location) -> None:
        """Refuse features that the rule does not have, and a value, bounds or count if it has features instead."""
        unknown = next((name for name in outcome.features if rule.is_short or name not in rule.features), None)
        if unknown is not None:
            named = ", ".join(rule.features) or "none"
            has = "has no features; write `value`" if rule.is_short else f"has the features {named}"
            raise self.fault((*location, "features", unknown), f"is not a feature; rule {rule.rule_id!r} {has}")
        wrong = next((name for name in _OF_ONE_AGGREGATE if name in outcome.model_fields_set), None)
        if not rule.is_short and wrong is not None:
            reason = f"rule {rule.rule_id!r} has features and no value of its own; write `features: {{NAME: VALUE}}`"
            raise self.fault((*location, wrong), reason)

    def _of_events(self) -> Iterator[Mismatch]:
        """Find events that unexpectedly were not evaluated, or were."""
        results = self.results
        for output, rows in results.not_evaluated.items():
            covered: set[int] = set()
            for index, reference in enumerate(getattr(self.expected, output)):
                location: Location = ("expect", output, index)
                positions = self._positions(reference, location)
                covered |= positions
                if not positions & rows.keys():
                    event = results.event(min(positions))
                    yield location, f"expected that {event} {NOT_EVALUATED[output]}; it is not so"
            for position in sorted(rows.keys() - covered):
                why = f"{results.event(position)} {results.why_not_evaluated(position, output)}"
                text = f"{why}; if that is intended, expect it: `{output}: [{position + 1}]`"
                yield results.given.origins[position], text

    def _of_alerts(self, name: str, entries: Sequence[_Entry], rows: Sequence[Row]) -> Iterator[Mismatch]:
        compared, noun = self.expected.by_rule(name), _NOUNS[name]
        left = [row for row in rows if not compared or row["rule_id"] in compared]
        for entry in entries:
            of_entry = (row for row in left if row["rule_id"] == entry.rule_id and row["position"] in entry.positions)
            alert = next(of_entry, None)
            if alert is None:
                missing = self._rule_at(entry.rule_id, min(entry.positions))
                yield entry.location, f"expected an {noun} of {missing}; what fired: {self.results.fired()}"
                continue
            left.remove(alert)
            yield from self._of_fields(entry, alert, f"{noun} of")
        for alert in left:
            where: Location = ("expect", name, alert["rule_id"]) if compared else ("expect", name)
            yield where, f"unexpected {noun} of {self._rule_at(alert['rule_id'], alert['position'])}"

    def _of_fields(self, entry: _Entry, row: Row, what: str) -> Iterator[Mismatch]:
        terms = terms_of(row) if entry.outcome.features else {}
        pairs: list[tuple[Location, Any, Any]] = [
            ((field,), getattr(entry.outcome, field), row[field])
            for field in type(entry.outcome).model_fields
            if field in entry.outcome.model_fields_set - _NOT_COLUMNS
        ]
        features = entry.outcome.features.items()
        pairs += [(("features", feature), _like(value, terms[feature]), terms[feature]) for feature, value in features]
        wrong = [(location, wanted, came) for location, wanted, came in pairs if wanted != came]
        if wrong:
            fields = "; ".join(f"expected {at[-1]} {shown(wanted)}, came {shown(came)}" for at, wanted, came in wrong)
            name = f"{what} {self._rule_at(entry.rule_id, row['position'], fields)}"
            yield (*entry.location, *wrong[0][0]), name

    def _rule_at(self, rule_id: str, position: int, fields: str = "") -> str:
        """Name a rule and an event, and describe the rule's result."""
        name = f"{rules_in_words([rule_id])} at {self.results.event(position)}"
        return f"{name}{f': {fields}' if fields else ''}; {self.results.found(position, rule_id)}"


def _like(wanted: str | bool | None, came: Any) -> Any:
    """Return the value of a feature in the form of a test: as a number unless the result is a text."""
    with suppress(ValueError):
        return wanted if isinstance(wanted, bool | None) or isinstance(came, str) else parse_decimal(wanted)
    return wanted


@dataclass(frozen=True)
class Failure:
    """A result that differs from what was expected."""

    line: int
    text: str


@dataclass(frozen=True)
class RuleTestOutcome:
    """The outcome of a test."""

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
        live = (rule for rule in file.rules if rule.state != "DELETE")
        in_force: dict[str, Any] = {"state": "ACTIVE", "rollout": WHOLE_SHARE, "snoozes": ()}
        self._rules = {rule.rule_id: rule.model_copy(update=in_force) for rule in live}
        self._evaluators: dict[tuple[str, ...], Evaluator] = {}

    def run(self, index: int) -> RuleTestOutcome:
        """Run the test with this index; BucketsError names a line that does not fit the event schema or the rules."""
        test, location = self._file.tests[index], ("tests", index)

        def fault(inside: Location, reason: str) -> BucketsError:
            return self._file.fault((*location, *inside), reason)

        line = self._file.line(location)
        chosen = [self._rules[rule_id] for rule_id in self.rules_of(test) if rule_id in self._rules]
        rules = {rule.rule_id: rule for rule in linked(chosen)}
        if not rules or any(rule_id not in self._rules for _, rule_id in test.expect.named_rules()):
            return RuleTestOutcome(test.name, str(self._file.path), line, (), ())
        given = given_events(test, self._schema, self._file.path.parent, fault)
        lists = _lists(test, rules.values(), fault)
        # Remarks about times are dropped: the tests themselves define them.
        recorded = self._evaluator(tuple(rules), lists).recorded(given.table, lambda line: None)
        results = RuleTestResults(given, rules, recorded)
        failures = (
            Failure(self._file.line((*location, *where)), text)
            for where, text in _Comparison(test.expect, results, fault).mismatches()
        )
        return RuleTestOutcome(test.name, str(self._file.path), line, tuple(rules), tuple(failures))

    def rules_of(self, test: RuleTest) -> tuple[str, ...]:
        """Return the rules of a test."""
        return test.rules or tuple(rule.rule_id for rule in self._file.rules)

    def _evaluator(self, rule_ids: tuple[str, ...], lists: Lists) -> Evaluator:
        """Return an evaluator of these rules without events; without lists they are checked and planned only once."""
        known = None if lists else self._evaluators.get(rule_ids)
        if known is not None:
            return known.fresh()
        rules = [self._rules[rule_id] for rule_id in rule_ids]
        made = Evaluator(rules, self._schema.with_written_ids, _engine_of(self._engine, rules, self._schema), lists)
        if not lists:
            self._evaluators[rule_ids] = made.fresh()
        return made


def _lists(test: RuleTest, rules: Iterable[Rule], fault: Fault) -> Lists:
    """Return the lists of a test, which must include all lists of its rules."""
    lists = {}
    for name, entries in test.lists.items():
        names = dict.fromkeys(field for entry in entries for field in entry)
        columns = {field: pa.array([as_text(entry.get(field)) for entry in entries], pa.string()) for field in names}
        try:
            lists[name] = ListIndex(base_of(pa.table(columns), None, f"list {name!r}"))
        except BucketsError as error:
            raise fault(("lists", name), error.message) from None
    for rule in rules:
        missing = list_fault(rule, lists)
        if missing is not None:
            raise fault(("lists",) if test.lists else (), f"rule {rule.rule_id!r}: {missing}")
    return lists


def _engine_of(engine: EngineSettings, rules: Iterable[Rule], schema: EventSchema) -> EngineSettings:
    """Return the settings of a job for some of its rules, with one shard: results do not depend on shards."""
    groups = {canonical_group_id(fields, where, schema) for rule in rules for fields, where in rule.groupings()}
    own = tuple(group for group in engine.precision.groups if group.group_id(schema) in groups)
    return engine.model_copy(update={"shards": 1, "precision": engine.precision.model_copy(update={"groups": own})})


def untested(file: RuleFile) -> list[str]:
    """Return the rules of a file without a test; deleted ones need none."""
    everything = {rule.rule_id for rule in file.rules}
    tested: set[str] = set().union(*(test.rules or everything for test in file.tests))
    return [rule.rule_id for rule in file.rules if rule.rule_id not in tested and rule.state != "DELETE"]

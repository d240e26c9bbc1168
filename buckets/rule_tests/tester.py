"""Runs the tests of a rule file: each on its own events, with nothing before them.

What is operated, not written, plays no part: a rule is tested as if it were ACTIVE for all keys and not snoozed,
whatever its state is. So the tests of a draft still hold when it is in force.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.config.lists import list_fault
from buckets.errors import BucketsError
from buckets.evaluation import Evaluator
from buckets.events.schema import EventSchema
from buckets.lists.index import ListIndex, Lists
from buckets.lists.list_file import base_of
from buckets.rule_files.rule_tests import RuleTest
from buckets.rule_files.yaml_rules import RuleFile
from buckets.rule_tests.comparison import mismatches
from buckets.rule_tests.given_events import Fault, as_text, given_events, say_nothing
from buckets.rule_tests.results import RuleTestResults
from buckets.rules.group import canonical_group_id
from buckets.rules.policy import WHOLE_SHARE
from buckets.rules.rule import Rule
from buckets.validation import Location


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
        """Run the test with this index.

        Raises:
            BucketsError: its events or expectations do not fit the event schema or the rules; says the line.
        """
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

"""A walk without a job: the steps of a plan through the engine in one process, batch by batch, against the oracle.

It has no Spark, no kills and no feeds, takes seconds, and says whether engine and oracle agree on all else.
"""

import json
from typing import Any

from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.lists.base import Entry
from buckets.lists.index import ListIndex
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.completeness import Stretches, joined
from buckets.rules.revision import deleted, revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.walk.catalogue import LATENESS_MS, SCHEMA, Written
from tests.walk.mirror import Mirror
from tests.walk.oracle_job import OracleJob
from tests.walk.plan import Plan
from tests.walk.rare import RarePaths, look_at
from tests.walk.recorded import RecordedBatch
from tests.walk.source import Line


class DryWalk:
    """A walk in one process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.rare = RarePaths(with_topics=True)
        self._mirror, self._oracle = Mirror(), OracleJob(self.rare)
        self._rules: dict[str, Written] = {}
        self._rule_set = RuleSet(0, (), (), {})
        self._gone: dict[str, int] = {}
        self._arrived: Stretches = ()
        self._lists: dict[str, ListIndex] = {}
        self._engine, self._schema = EngineSettings(), EventSchema.model_validate(SCHEMA)
        self._batches = 0
        self._before: RecordedBatch | None = None

    def run(self) -> None:
        """Do the steps.

        Raises:
            Difference: engine and oracle do not agree.
        """
        for step in self._plan.steps:
            if step.kind == "kill":
                for lines in step.what["files"]:
                    self._add_file("plain", lines)
            elif hasattr(self, f"_{step.kind}"):
                getattr(self, f"_{step.kind}")(**step.what)

    def _configure(self, precision: dict[str, Any], state: Any = None) -> None:
        self._engine = EngineSettings.model_validate({**self._plan.engine, "precision": precision})

    def _serve(self, lines: list[str]) -> None:
        self._add_file("plain", lines)

    def _write_rules(self, note: str, rules: list[Written]) -> None:
        self._rules = {rule["rule_id"]: rule for rule in rules}
        self._put()

    def _snooze(self, rule_id: str, key: str, until: str) -> None:
        name, _, value = key.partition("=")
        snooze = {"key": {name: value}, "until": until, "reason": "known", "author": "w"}
        before = self._rules[rule_id]
        self._rules[rule_id] = before | {"snoozes": [*before.get("snoozes", ()), snooze]}
        self._put()

    def _backfill(self, rule: Written) -> None:
        self._rules[rule["rule_id"]] = rule
        self._put()

    def _clear_state(self, rule_id: str) -> None:
        self._change([RuleChange(change="clear_state", rule_id=rule_id)])

    def _put(self) -> None:
        rules = [Rule.model_validate(json.loads(json.dumps(rule))) for rule in self._rules.values()]
        self._change(list(changes_between(self._rule_set.rules, rules)))

    def _change(self, changes: list[RuleChange]) -> None:
        found = revise(self._rule_set, changes, self._schema, self._arrived, LATENESS_MS, self._gone)
        assert not found.refused, found.refused
        self._rule_set = found.rule_set
        self._gone |= deleted(found.made)

    def _write_schema(self, schema: Written) -> None:
        self._schema = EventSchema.model_validate(schema)

    def _write_list(self, name: str, entries: dict[str, tuple[int | None, str]]) -> None:
        found = {key: Entry({"level": level}, until_ms) for key, (until_ms, level) in entries.items()}
        self._lists = self._lists | {name: ListIndex.of(found)}

    def _add_file(self, of: str, lines: list[str]) -> None:
        number = self._batches
        self._batches += 1
        terms = Terms(event_schema=self._schema, engine=self._engine, evaluations=True, output="delta")
        stands = [Line(f"{number:04d}", number, position, line.encode()) for position, line in enumerate(lines, 1)]
        versions = {name: id(index) for name, index in self._lists.items()}
        batch = RecordedBatch(number, tuple(stands), self._rule_set, terms, self._lists, versions)
        tables = self._mirror.score(batch)
        assert self._mirror.account is not None
        self._arrived = joined([*self._arrived, *self._mirror.account.arrived])
        self._oracle.check(batch, tables)
        look_at(self.rare, batch, self._before, tables)
        self._before = batch

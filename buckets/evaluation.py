"""Rules over tables of events without Spark: the same two stages as in a job, in this process.

events (Arrow) ---> Evaluator, which keeps the timelines ---> Results (Arrow), one table an output
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.config.engine import EngineSettings, precision_faults, raw_window_faults
from buckets.config.lists import list_faults
from buckets.engine.results.feature_table import FeatureTable, numbered
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.errors import BucketsError, refuse
from buckets.events.parquet_rows import SOURCE_NAME, table_arrivals
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.outputs.columns import field_types, with_digits, with_structs
from buckets.rules.change import changes_between
from buckets.rules.feature import alert_schema
from buckets.rules.flink_message import check_against_schema, check_new
from buckets.rules.revision import revise
from buckets.rules.role import fields_of
from buckets.rules.rule import Rule, value_scale
from buckets.rules.rule_set import RuleSet
from buckets.validation import field_name

OF_SOURCE = ("source", "source_order", "position")  # Where a row stood among files or partitions
_POSITION = pa.field("position", pa.int64())


@dataclass(frozen=True)
class Results:
    """What came out for one table of events.

    Rows are in arrival order, those of one event in the order of the rules. Every table has a column `position`, the
    index of the event's row in the table that was evaluated, from 0. Times are timestamps in UTC. Keys, events and
    terms are structs: a key has the fields by which some rule of the table groups, null where its own rule does not.
    Values are decimals with the digits that the rules' values have, amounts of events with those of their measures;
    values of terms are text, since they may be of any kind.

    Each output is an attribute, and an entry of `tables`.

    Attributes:
        evaluations: one row for an evaluated event and a rule; of a rule over alerts one for an alert, with its id.
        alerts: evaluations of ACTIVE rules that crossed the limit, or met the condition, with the event and the rule in
            English.
        shadow_alerts: the same for SHADOW rules, and for keys outside the share of a rule's `rollout`.
        held_alerts: alerts that policies have held back, with `held_by`, and `state`, ACTIVE or SHADOW.
        late_events: events that were older than the latest event of their key.
        collisions: events that shared their time with another one of their key.
        duplicates: events that had already arrived.
        dead_letters: rows that are not valid events, and events with which a sum would pass 64 bits, with the reason.
        tables: all of these, by name.
        account: for each group, how many events had which outcome.
    """

    tables: Mapping[str, pa.Table]
    account: BatchAccount

    def __getattr__(self, name: str) -> pa.Table:
        tables = self.__dict__.get("tables", {})
        if name not in tables:
            message = f"there is no output {name!r}; there are {', '.join(tables)}"
            raise AttributeError(message)
        return tables[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]


class Evaluator:
    """Evaluates tables of events that arrive one after the other; windows reach back into earlier tables."""

    def __init__(
        self,
        rules: Iterable[Rule],
        schema: EventSchema,
        engine: EngineSettings | None = None,
        lists: Lists = NO_LISTS,
    ) -> None:
        """Begin with empty timelines.

        Args:
            rules: the rules.
            schema: the event schema.
            engine: lateness, collisions and precision; the defaults of a job if None.
            lists: by name, the lists that rules look into, as `load_list` reads them.

        Raises:
            BucketsError: a rule does not fit the schema or looks into a list that is not given, two have the same id, a
                precision is for a group that no rule has, or an argument is of another kind.
        """
        settings = EngineSettings() if engine is None else engine
        rules = checked_kinds(rules, schema, settings)
        refuse(precision_faults("engine settings", rules, settings, schema))
        self._schema = schema
        check_rules(rules, schema)
        self._rule_set = first_version(rules, schema, settings)
        refuse(raw_window_faults("engine settings", rules, settings, schema))
        refuse(list_faults("lists", rules, lists))
        self._decoder = OutputDecoder(self._rule_set, schema, settings)
        self._job = InMemoryJob(Scorer(schema, settings, evaluations=True, lists=lists))
        self._tables = 0

    @property
    def rule_set(self) -> RuleSet:
        """The rules as a job has them."""
        return self._rule_set

    def fresh(self) -> "Evaluator":
        """Return the same rules and settings with empty timelines, without reading and checking them again."""
        other = copy.copy(self)
        other._job, other._tables = InMemoryJob(self._job.scorer), 0
        return other

    def evaluate(self, events: pa.Table) -> Results:
        """Evaluate the events that arrive next.

        The first call on a machine compiles the kernels, which takes up to a minute. Time and memory grow with
        events x rules.

        Args:
            events: one row an event, in arrival order, with a column for each field that the rules need. Columns that
                the event schema does not declare are passed over.

        Raises:
            BucketsError: a column that the schema or a rule needs is missing, or `events` is not an Arrow table.
        """
        recorded = self.recorded(events)
        rules = self._rule_set.rules
        counts_alerts = any(rule.on == "alerts" for rule in rules)
        known = field_types(alert_schema(self._schema) if counts_alerts else self._schema) | field_types(self._schema)
        keys = list(
            dict.fromkeys(name for rule in rules for fields, _ in rule.groupings() for name in fields_of(fields))
        )
        digits = max((value_scale(rule, self._schema) for rule in rules if rule.is_short), default=0)
        tables = recorded.tables.items()
        typed = {name: with_digits(with_structs(table, known, keys), digits) for name, table in tables}
        return Results(typed, recorded.account)

    def recorded(self, events: pa.Table, say: Callable[[str], None] = warnings.warn) -> Results:
        """Evaluate as `evaluate` does, into tables as a job writes them: keys, events and terms are JSON as text.

        `say` is told of times without a zone; without it Python warns of them.
        """
        scored = self._job.score_batch(self._arrivals(events, say), self._rule_set)
        written = columns.output_columns(self._schema.largest_scale)
        tables = {name: self._table(name, kept, scored.payloads.get(name, [])) for name, kept in written.items()}
        return Results(tables, scored.account)

    def features(self, events: pa.Table, ids: pa.Array | None = None, flags: bool = False) -> pa.Table:
        """Evaluate the events that arrive next, as `evaluate` does, and tell what rules have computed at each of them.

        Args:
            events: as for `evaluate`.
            ids: Arrow string, the ids of events that are wanted, such as those with a label; None for a row for each
                event of the table.
            flags: whether to say of each feature whether it is exact, and whether it is warm.

        Returns:
            A row for each event, in arrival order, as `buckets.features` describes.

        Raises:
            BucketsError: as `evaluate`; also if a rule is over alerts, or none is evaluated.
        """
        table = FeatureTable(self._rule_set, self._schema, flags)
        job = replace(self._job, scorer=replace(self._job.scorer, evaluations=False, features=True, alerts=False))
        pieces = list(numbered(self._arrivals(events), 0))
        return table.rows(pieces, job.score_batch(pieces, self._rule_set).payloads, ids)

    def _arrivals(self, events: pa.Table, say: Callable[[str], None] = warnings.warn) -> Iterator[pa.RecordBatch]:
        # Rows of later tables are others, where their ids are made of their numbers.
        name = f"{SOURCE_NAME}{self._tables + 1}" if self._tables else SOURCE_NAME
        arrivals = table_arrivals(events, self._schema, name, say)
        self._tables += 1
        return arrivals

    def _table(self, output: str, written: pa.Schema, payloads: list[bytes]) -> pa.Table:
        """Return an output in arrival order, with the columns that it has in a job but for those of its source."""
        shown = pa.schema([field for field in written if field.name not in OF_SOURCE] + [_POSITION])
        if not payloads:
            return shown.empty_table()
        table = self._decoder.table(output, payloads)
        order = np.lexsort((self._rank(table), table["position"].to_numpy()))
        return table.select(shown.names).take(pa.array(order)).combine_chunks()

    def _rank(self, table: pa.Table) -> Int64s:
        """Return how the rows of one event are ordered: by rule, or by group, as the rules name them."""
        rules, groups = self._rule_set.rules, self._rule_set.groups
        for name, values in (
            ("rule_id", [rule.rule_id for rule in rules]),
            ("group", [group.name for group in groups]),
        ):
            if name in table.column_names:
                rank: Int64s = pc.index_in(table[name], pa.array(values)).to_numpy().astype(np.int64)
                return rank
        return np.zeros(len(table), np.int64)


def evaluate(
    events: pa.Table,
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings | None = None,
    lists: Lists = NO_LISTS,
) -> Results:
    """Evaluate one table of events, with nothing before it.

    Args:
        events: as for `Evaluator.evaluate`.
        rules: the rules.
        schema: the event schema.
        engine: lateness, collisions and precision; the defaults of a job if None.
        lists: by name, the lists that rules look into, as `load_list` reads them.

    Raises:
        BucketsError: a rule does not fit the schema, two rules have the same id, or a column is missing.
    """
    return Evaluator(rules, schema, engine, lists).evaluate(events)


def features(
    events: pa.Table,
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings | None = None,
    lists: Lists = NO_LISTS,
    ids: pa.Array | None = None,
    flags: bool = False,
) -> pa.Table:
    """Compute the features of rules at each event of a table, as they were when it arrived: what models train on.

    Args:
        events: as for `Evaluator.evaluate`.
        rules: the rules, which are evaluated whether they are ACTIVE or SHADOW.
        schema: the event schema.
        engine: lateness, collisions and precision; the defaults of a job if None.
        lists: by name, the lists that rules look into, as `load_list` reads them.
        ids: Arrow string, the ids of events that are wanted, such as those with a label; repeats of these are left out.
            None for a row for each event of the table.
        flags: whether to say of each feature whether it is exact, and whether it is warm.

    Returns:
        A row for each event, in arrival order, with `event_id`, `event_time`, `position` (the index of its row), the
        fields by which rules group, `outcome`, and for each rule its features, as `RULE.FEATURE`, and `RULE.fired`; the
        value of a rule with one aggregate is `RULE.value`. Features are booleans, int64, or decimals with their digits,
        and NULL where the rule was not evaluated at the event; `outcome` says why: `filtered` (no rule applies to it),
        `late`, `too_late`, `duplicate`, `collision` (not kept) or `dead_letter`, else it is `evaluated`.

    Raises:
        BucketsError: as `evaluate`; also if a rule is over alerts, or none is evaluated.
    """
    return Evaluator(rules, schema, engine, lists).features(events, ids, flags)


def checked_kinds(rules: Iterable[Rule], schema: EventSchema, engine: EngineSettings) -> tuple[Rule, ...]:
    """Return the rules as a tuple; BucketsError if something that a program gives is of another kind."""
    for name, given, wanted in (("schema", schema, EventSchema), ("engine", engine, EngineSettings)):
        if not isinstance(given, wanted):
            message = f"{name}: must be of type {wanted.__name__}, not {type(given).__name__}"
            raise BucketsError(message)
    single = isinstance(rules, Rule) or not isinstance(rules, Iterable)
    listed = () if single else tuple(rules)
    wrong = [rules] if single else [rule for rule in listed if not isinstance(rule, Rule)]
    if wrong:
        message = f"rules: must be several of type Rule, as a list, not {type(wrong[0]).__name__}"
        raise BucketsError(message)
    return listed


def first_version(
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings,
    fault: Callable[[Rule], str | None] = lambda rule: None,
) -> RuleSet:
    """Return the rules as a job would have them in its first version; one with a `fault` is refused."""
    nothing = RuleSet(0, (), (), {})
    revision = revise(nothing, changes_between((), rules), schema, (), engine.allowed_lateness, fault=fault)
    if revision.refused:
        raise BucketsError(revision.refused[0].reason)
    return revision.rule_set


def check_rules(rules: Iterable[Rule], schema: EventSchema) -> None:
    """Refuse rules that are not valid, do not fit an event schema, or have one id."""
    seen: set[str] = set()
    for rule in rules:
        if rule.rule_id in seen:
            message = f"rule {rule.rule_id!r}: another rule has the same rule_id; rename one of them"
            raise BucketsError(message)
        seen.add(rule.rule_id)
        fault = check_new(rule) or check_against_schema(rule, schema)
        if fault is not None:
            message = f"rule {rule.rule_id!r}: {field_name(fault[0])}: {fault[1]}"
            raise BucketsError(message)

"""Summarises events: counts their properties, and tries rules on them in memory."""

from collections.abc import Callable, Hashable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from buckets.config.engine import EngineSettings, raw_window_fault
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import DeadLetter, EventColumns, field_column, parse
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.lint.subject import EventSummary, KeyCounts
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.filter import Filter, filter_fields, matches, names_this
from buckets.rules.role import counted_field, fields_of
from buckets.rules.rule import POLICY_FIELDS, Rule
from buckets.rules.rule_set import RuleSet, first_rule_set

_COUNT = "count"


def summarise(
    arrivals: Iterable[pa.RecordBatch],
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings,
    on_rows: Callable[[int], None] = lambda rows: None,
    lists: Lists = NO_LISTS,
) -> EventSummary:
    """Count events, and try rules on them: all in force, without policies, each by itself.

    Rules over alerts, and those that look into other lists, are skipped. `on_rows` is called with the number of rows so
    far.
    """
    of_events = (rule for rule in rules if rule.on == "events" and not rule.asks_alerts)
    tried = [rule for rule in of_events if rule.lists <= lists.keys()]
    counts, trial, rows_so_far = _Counts(tried, schema, lists), _Trial(tried, schema, engine, lists), 0
    for rows in arrivals:
        events, broken = parse(rows, schema, frozenset())
        counts.add(events, broken)
        counts.add_types(rows)
        trial.add(rows)
        rows_so_far += len(rows)
        on_rows(rows_so_far)
    return counts.summary(trial.fired)


class _Counts:
    def __init__(self, rules: Iterable[Rule], schema: EventSchema, lists: Lists) -> None:
        self._schema = schema
        self._lists = lists
        self._events, self._bad = 0, BadRows()
        self._passed: dict[Filter, int] = {}
        self._nulls: dict[str, int] = {}
        self._keys: dict[tuple[str, ...], pa.Table | None] = {}
        self._floating: dict[str, str] = {}
        for rule in rules:
            self._passed |= dict.fromkeys(_filters(rule), 0)
            self._nulls |= dict.fromkeys(_fields(rule), 0)
            self._keys |= {tuple(sorted(map(counted_field, fields))): None for fields, _ in rule.groupings() if fields}

    def add(self, events: EventColumns, broken: list[DeadLetter]) -> None:
        fields = events.attributes | events.measures | {self._schema.event_time.field: pa.array(events.times_ms)}
        self._events += len(events)
        bad = ((letter.source, letter.position, letter.reason) for letter in broken)
        self._bad.take(len(events) + len(broken), len(broken), bad)
        self._bad.rounded.update(events.rounded_values)
        for where in self._passed if len(events) else ():
            mask = matches(where, fields, self._schema, self._lists)
            self._passed[where] += len(events) if mask is None else mask.true_count
        for name in self._nulls:
            self._nulls[name] += fields[name].null_count
        for names, before in self._keys.items():
            keyed = pa.table({name: fields[name] for name in names}).drop_null()
            counted = keyed.append_column(_COUNT, pa.repeat(pa.scalar(1, pa.int64()), len(keyed)))
            both = counted if before is None else pa.concat_tables([before, counted])
            self._keys[names] = both.group_by(list(names)).aggregate([(_COUNT, "sum")]).rename_columns([*names, _COUNT])

    def add_types(self, rows: pa.RecordBatch) -> None:
        """Record which text fields arrive as floating point."""
        for index, name in enumerate(self._schema.field_names):
            kind = rows.column(field_column(index)).type
            if self._schema.holds_text(name) and pa.types.is_floating(kind):
                self._floating.setdefault(name, str(kind))

    def summary(self, fired: Mapping[str, int]) -> EventSummary:
        keys: dict[tuple[str, ...], KeyCounts] = {}
        for names, table in self._keys.items():
            if table is not None and len(table):
                largest = pc.max(table[_COUNT]).as_py()
                row = table.slice(pc.index(table[_COUNT], largest).as_py(), 1).to_pylist()[0]
                key = tuple(row[name] for name in names)
                keys[names] = KeyCounts(len(table), largest, key, pc.sum(table[_COUNT]).as_py())
        return EventSummary(self._events, self._bad, self._passed, self._nulls, keys, fired, self._floating)


def _filters(rule: Rule) -> list[Filter]:
    written = (rule.where, *(where for feature in rule.features.values() for where in feature.filters.values()))
    return [where for where in written if where and not names_this(where)]


def _fields(rule: Rule) -> set[str]:
    names = {field for fields, _ in rule.groupings() for field in fields_of(fields)} | rule.filter_fields
    names |= {feature.of for feature in rule.features.values() if feature.of is not None}
    return names.union(*map(filter_fields, _filters(rule)))


class _Trial:
    def __init__(self, rules: Iterable[Rule], schema: EventSchema, engine: EngineSettings, lists: Lists) -> None:
        fields = Rule.model_fields
        # As if they were in force, with nothing that holds alerts back.
        active: dict[str, Hashable] = {
            name: fields[name].get_default(call_default_factory=True) for name in POLICY_FIELDS if name != "on"
        } | {"state": "ACTIVE"}
        fitting = (rule for rule in rules if raw_window_fault(rule, engine, schema) is None)
        in_force = [rule.model_copy(update=active) for rule in fitting]
        self._rule_set: RuleSet = first_rule_set(in_force)
        self._decoder = OutputDecoder(self._rule_set, schema, engine)
        self._job = InMemoryJob(Scorer(schema, engine, evaluations=False, lists=lists))
        self.fired: dict[str, int] = {rule.rule_id: 0 for rule in in_force}

    def add(self, rows: pa.RecordBatch) -> None:
        """Score the next events."""
        if not self.fired:
            return
        payloads = self._job.score_batch([rows], self._rule_set).payloads.get(columns.ALERTS, [])
        for alerts in self._decoder.tables(columns.ALERTS, payloads):
            for fired in alerts["rule_id"].value_counts().to_pylist():
                self.fired[fired["values"]] += fired["counts"]

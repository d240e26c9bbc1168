"""The second stage of a batch: its alerts as events, for rules over alerts.

It runs on the driver, after all shards and `cross_group`, and reads every alert that rules over events raised in the
batch: in the arrival order of the events, and for one event in the order of the rules. So results do not depend on how
the stream is cut. Alerts go through the same stages as events, with one shard; their alerts name the event that raised
the alert. Alerts of rules over alerts, of rules on trial and alerts held back do not enter.

Rules over events may have features over alerts. The events to which they apply come here too, and ask in timelines of
alerts before their own alerts enter; the rules are then evaluated, with the parts that shards have computed. Their
alerts do not enter either: otherwise an alert could depend on itself.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.config.engine import DuplicateSettings, JobPrecision
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import attribute_column, fan_out, measure_column
from buckets.engine.batch.shard_events import ShardPayload
from buckets.engine.results.side_outputs import MAKERS
from buckets.engine.stages.accounting import BatchAccount, account_batch, compact, event_numbers
from buckets.engine.stages.cross_group import PARTS, meet
from buckets.engine.stages.shard import COUNTS, Produced, Scorer, cross_group_outputs, evaluation_rows
from buckets.engine.storage.shard_store import DriverStores
from buckets.errors import BucketsError
from buckets.events.arrivals import INGESTED, JUDGED, POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.events.conversion import column_types
from buckets.events.schema import ALERT_SCORE, EventSchema
from buckets.numbers.fixed_point import format_scaled
from buckets.outputs import columns
from buckets.outputs.columns import ALERTS
from buckets.rules.feature import ALERT_ID, ALERT_RULE, ALERT_SEVERITY, alert_schema
from buckets.rules.group import Group
from buckets.rules.role import asks_alerts
from buckets.rules.rule_set import RuleSet

_RANK = "rank"


def alert_outputs(
    scorer: Scorer, payloads: Iterable[bytes], parts: Sequence[bytes], rule_set: RuleSet, stores: DriverStores
) -> Iterator[Produced]:
    """Yield the outputs of rules that read the alerts of a batch, and counts for the accounts.

    These are rules over alerts, and rules with features over alerts, whose events are in `parts`.

    Raises:
        BucketsError: the event schema now has a field that only alerts may have.
    """
    over, asking = rule_set.over_alerts, rule_set.asking_alerts
    tables = [payload.unpack(packed) for packed in payloads]
    if over is None or not (tables or (asking and parts)):
        return
    stage = _stage_of(scorer)
    alerts = _in_order([table.replace_schema_metadata() for table in tables], rule_set) if tables else pa.table({})
    arrivals = _arrivals(alerts, rule_set, scorer.schema, stage.schema) if tables else []
    asked = None if asking is None else _asking_events(parts, asking, scorer.schema, stage.schema)
    entering: list[ShardPayload] = []
    for group, rows in chain(*(product([group], _rows_of(group, arrivals, asked)) for group in over.groups)):
        # Each group by itself: also where nulls are strict, one in a field that it needs is nothing to the others.
        fanned = fan_out(rows, replace(over, groups=(group,)), stage.schema, stage.engine, stage.lists)
        if fanned.sent is not None:
            entering.append(fanned.sent.of_shard(0))
        yield from (_of_group(message.payload, group) for message in fanned.others)
    found = list(stage.score(entering, over, stores.alerts))
    own_parts = [produced.payload for produced in found if produced.output == PARTS]
    if asking is not None:
        yield from cross_group_outputs(scorer, [*parts, *own_parts], asking, stores.cross_group)
    for produced in chain(found, cross_group_outputs(stage, own_parts, over, stores.alerts_cross_group)):
        # Side outputs tell of events; of alerts, the accounts of the batch tell as much.
        if produced.output not in (*MAKERS, PARTS):
            yield _of_events(produced, alerts, over, stage)


def _stage_of(scorer: Scorer) -> Scorer:
    """Return a scorer that scores alerts as events."""
    try:
        schema = alert_schema(scorer.schema)
    except ValueError as error:
        raise BucketsError(str(error)) from None
    # Alerts are few, so all are kept as they are.
    fixed = {"shards": 1, "collision": "keep", "duplicates": DuplicateSettings(), "precision": JobPrecision()}
    return Scorer(schema, scorer.engine.model_copy(update=fixed), scorer.evaluations, scorer.lists)


def _in_order(tables: list[pa.Table], rule_set: RuleSet) -> pa.Table:
    """Sort alerts by the arrival of their events, then by rule."""
    alerts = pa.concat_tables(tables, promote_options="permissive")
    rank = pc.index_in(alerts["rule_id"], pa.array([rule.rule_id for rule in rule_set.rules]))
    order = [SOURCE_ORDER, SOURCE, POSITION, _RANK, "event_id", ALERT_ID]
    return alerts.append_column(_RANK, rank).sort_by([(name, "ascending") for name in order]).combine_chunks()


def _arrivals(
    alerts: pa.Table, rule_set: RuleSet, schema: EventSchema, stage_schema: EventSchema
) -> list[pa.RecordBatch]:
    """Convert alerts to the form of `events.arrivals`, in one piece unless a column has more than 2 GB of text."""
    events = list(map(json.loads, alerts["event"].to_pylist()))
    rules = [rule_set.rules[rank] for rank in alerts[_RANK].to_pylist()]
    fields = {
        ALERT_ID: alerts["alert_id"],
        schema.event_time.field: alerts["event_time"].cast(pa.int64()),
        schema.event_id: alerts["event_id"],
        ALERT_RULE: alerts["rule_id"],
        ALERT_SEVERITY: pa.array([rule.severity for rule in rules], pa.string()),
        ALERT_SCORE: alerts["score"],
    }
    for name, kind in column_types(schema).items():
        fields[name] = pa.array([event[name] for event in events], kind)
    for name in schema.measures:
        fields[name] = pa.array([event[name] for event in events], pa.string())
    origin = {name: alerts[name] for name in (SOURCE, SOURCE_ORDER, POSITION, INGESTED) if name in alerts.column_names}
    rows = origin | {field_column(index): fields[name] for index, name in enumerate(stage_schema.field_names)}
    pieces: list[pa.RecordBatch] = pa.table(rows).combine_chunks().to_batches()
    return pieces


def _asking_events(
    parts: Iterable[bytes], asking: RuleSet, schema: EventSchema, stage_schema: EventSchema
) -> list[pa.Table]:
    """Return the events to which rules with features over alerts apply, in the form of arriving alerts."""
    homes = {identities[0] for identities in asking.spanning_rules}
    named = frozenset().union(*(rule.filter_fields for rule in asking.rules))
    found = []
    for events in map(payload.unpack, parts):
        if payload.group_of(events) not in homes:
            continue
        fields = {ALERT_ID: events["event_id"], schema.event_time.field: events["time_ms"]}
        fields |= {schema.event_id: events["event_id"]}
        for name in schema.attributes:
            if attribute_column(name) in events.column_names:
                fields[name] = events[attribute_column(name)]
        for name in named.intersection(schema.measures):
            scale, values = schema.measures[name].scale, events[measure_column(name)].to_pylist()
            fields[name] = pa.array([None if each is None else format_scaled(each, scale) for each in values])
        origin = {name: events[name] for name in (SOURCE_ORDER, POSITION, INGESTED) if name in events.column_names}
        rows = {SOURCE: events["source"].cast(pa.string()), **origin}
        for index, name in enumerate(stage_schema.field_names):
            rows[field_column(index)] = fields.get(name, pa.nulls(len(events)))
        found.append(pa.table(rows))
    return found


def _rows_of(group: Group, alerts: Sequence[pa.RecordBatch], asked: Sequence[pa.Table] | None) -> list[pa.RecordBatch]:
    """Return the rows that enter a group of alerts; where events ask, alerts only fill. `asked` is None if none do."""
    if asked is None:
        return [*alerts]
    asks = asks_alerts(group.fields)
    tables = [table.append_column(JUDGED, pa.array([True] * len(table))) for table in (asked if asks else [])]
    for piece in alerts:
        tables.append(pa.table(piece).append_column(JUDGED, pa.array([not asks] * piece.num_rows)))
    if not tables:
        return []
    pieces: list[pa.RecordBatch] = pa.concat_tables(tables, promote_options="permissive").combine_chunks().to_batches()
    return pieces


def _of_group(packed: bytes, group: Group) -> Produced:
    """Convert a message that `fan_out` wrote for one group: counts, or dead letters, whose reasons get its name."""
    if packed[:1] == payload.COUNTS:
        told = json.loads(packed[1:])
        counts = {"group_id": group.group_id, "alerts_in": told["arrivals"], "malformed": told["malformed"]}
        counts |= {name: told[name][group.group_id] for name in ("filtered", "no_key")}
        counts["alerts_in"] += told.get("asked", {}).get(group.group_id, 0)
        return Produced(COUNTS, 0, json.dumps(counts).encode())
    table = payload.unpack(packed)
    reasons = pc.binary_join_element_wise(pa.scalar(group.name), table["reason"], ": ")
    named = table.set_column(table.column_names.index("reason"), "reason", reasons)
    return Produced(columns.DEAD_LETTERS, table.num_rows, payload.pack(payload.DEAD_LETTERS, named))


def _of_events(produced: Produced, alerts: pa.Table, over: RuleSet, stage: Scorer) -> Produced:
    """Convert an output of rules over alerts to the form that it has for rules over events.

    Evaluations are expanded here, where their rules are known; they keep the ids of alerts, as an event may have
    several. Every other output names the event that raised the alert.
    """
    if produced.output in (COUNTS, columns.DEAD_LETTERS):
        return produced
    if produced.output == columns.EVALUATIONS:
        rows = evaluation_rows(produced.payload, over, stage.schema, stage.engine)
        return Produced(produced.output, rows.num_rows, payload.pack(payload.ROWS, rows))
    table = payload.unpack(produced.payload)
    raised_by = alerts["event_id"].take(pc.index_in(table["event_id"], alerts["alert_id"]))
    named = table.set_column(table.column_names.index("event_id"), "event_id", raised_by)
    return Produced(produced.output, produced.rows, payload.pack(payload.EVENTS, named, payload.group_of(table)))


def complete_batch(
    batch_id: int,
    produced: Iterable[Produced],
    scorer: Scorer,
    rule_set: RuleSet,
    stores: DriverStores,
    is_thinned: bool = False,
) -> tuple[list[Produced], BatchAccount]:
    """Complete a batch from the outputs of its shards; return the further outputs, and the account of the batch.

    It reads counts, parts and, for rules over alerts, alerts. `is_thinned` says that `fired_parts` has already reduced
    the parts, and put out the evaluations and features of their rules.
    """
    read: dict[str, list[bytes]] = {COUNTS: [], PARTS: [], **({ALERTS: []} if rule_set.alert_groups else {})}

    def note(several: Iterable[Produced]) -> list[Produced]:
        noted = list(several)
        for one in noted:
            if one.output in read:
                read[one.output].append(bytes(one.payload))
        return noted

    note(produced)
    meeting = replace(scorer, evaluations=False, features=False) if is_thinned else scorer
    besides = note(cross_group_outputs(meeting, read[PARTS], rule_set, stores.cross_group))
    besides += note(alert_outputs(scorer, read.get(ALERTS, []), read[PARTS], rule_set, stores))
    if not scorer.counts:
        return besides, BatchAccount(batch_id, rule_set.version, 0, 0, (), ())
    return besides, account_batch(batch_id, rule_set, read[COUNTS])


def fired_parts(scorer: Scorer, payloads: Sequence[bytes], rule_set: RuleSet) -> Iterator[Produced]:
    """Yield the evaluations of rules that span groups, and the parts of the events at which one fires.

    `payloads` are the whole output `PARTS` of some events. If policies keep state, the latest event of each key is kept
    too: its time decides when that state is evicted.
    """
    kept: list[Int64s] = []
    for group, judged in meet(payloads, rule_set, scorer.schema, scorer.lists):
        numbers = event_numbers(judged.table.events)
        kept.append(numbers[judged.events[judged.fired]])
        if group.policies:
            table = judged.table  # the latest event of each key
            order = np.lexsort((table.column("time_ms"), table.codes))
            is_last = np.append(np.diff(table.codes[order]) != 0, np.ones(min(len(order), 1), np.bool_))
            kept.append(numbers[order[is_last]])
        yield from (one for one in scorer.conditions(judged, rule_set.version) if one.rows)
    if rule_set.asking_alerts is not None:  # Whether these fire is not known yet.
        kept += [event_numbers(payload.unpack(packed)) for packed in payloads]
    wanted = np.unique(np.concatenate(kept)) if kept else np.empty(0, np.int64)
    for packed in payloads:
        table = payload.unpack(packed)
        left = table.filter(pa.array(np.isin(event_numbers(table), wanted)))
        if len(left):
            yield Produced(PARTS, 0, payload.pack(packed[:1], compact(left), payload.group_of(table)))

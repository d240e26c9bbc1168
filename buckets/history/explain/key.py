"""The arrivals of one key of a group, and the fate of each up to an event.

The tests are those of the documentation, in the same order: too late, repeat, late, collision. They are deliberately
implemented a second time, since an explanation of a timeline must not come from that timeline.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.arrived_rows import ARRIVAL, BATCH, OWN_COLUMNS
from buckets.config.engine import CollisionPolicy, JobPrecision, LatePolicy, Precision
from buckets.delta.whole_table import is_between, quoted_column, sql_moment, sql_text
from buckets.events.conversion import column_types
from buckets.events.schema import ALERT_SCORE
from buckets.history.explain.history_lookup import Arrivals, Past, is_value
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.json_text import write_json
from buckets.moment import TimeRange
from buckets.numbers.fixed_point import to_scaled
from buckets.outputs.columns import ALERTS, DEAD_LETTERS
from buckets.outputs.recorded_outputs import Row, Selection, rows_of
from buckets.rules.completeness import Fill
from buckets.rules.feature import ALERT_RULE, ALERT_SEVERITY, Counted, alert_schema
from buckets.rules.filter import Filter
from buckets.rules.group import Group, canonical_group_id, group_id
from buckets.rules.role import asked_field, asks_alerts, counted_field
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

Fate = Literal[
    "counts",  # it is in the timeline
    "late",  # in the timeline, and older than another of its key that came before it
    "collides",  # in the timeline, and shares its time with another
    "repeat",  # the same id had come before, at the same time or as near as the job says
    "too late",  # older than what is kept
    "dropped",  # late, and the job drops what is late
    "not kept",  # shares its time with another, and the job keeps the first
    "replaced",  # another came at its time, and the job keeps the last
    "refused",  # a sum would have passed 64 bits
    "left out",  # the filter of the group does not pass it
    "malformed",  # a field that the group needs is null
    "before",  # it came before the group was kept
    "asks",  # the event in question, which counts in the timeline of another key
    "not yet",  # it arrived after the event in question
]
"""The fate of an arrival."""
IN_TIMELINE: Final[frozenset[Fate]] = frozenset(["counts", "late", "collides"])


@dataclass(frozen=True)
class Regime:
    """The settings of a batch that decide the fates of its arrivals."""

    horizon_ms: int  # how far back the group reaches
    late: LatePolicy  # what is done with late events
    collision: CollisionPolicy  # what is done with events that share a time
    precision: Precision  # for how long events are raw
    repeats_ms: int = 0  # how far apart in time two of one id may be to be repeats; 0 where they have the same time

    def is_raw(self, time_ms: int, clock_ms: int) -> bool:
        """Return whether events at a time are still stored one by one, when the key's clock is at another time."""
        tail_ms, width_ms = self.precision.tail, self.precision.resolution
        return tail_ms is None or time_ms >= (clock_ms - tail_ms) // width_ms * width_ms


def decide_fates(
    times_ms: Sequence[int], ids: Sequence[str], regimes: Sequence[Regime], known: Mapping[int, Fate]
) -> tuple[list[Fate], dict[int, int], int | None]:
    """Return the fates of arrivals of one key, in order of arrival. A repeat does not move the clock.

    `regimes` are the settings at each arrival; `known` gives, by index, the fates of those that did not reach the
    timeline. Complexity: O(n) if few share an id or a time.

    Returns:
        The fate of each; by index, the arrival with which one shares id or time; and the greatest time that had come
        before the last one, None for none.
    """
    fates: list[Fate] = []
    others: dict[int, int] = {}
    by_id: dict[str, list[int]] = defaultdict(list)
    by_time: dict[int, list[int]] = defaultdict(list)
    clock_ms = before_ms = None
    for row, (time_ms, regime) in enumerate(zip(times_ms, regimes, strict=True)):
        before_ms = clock_ms
        if row in known:
            fates.append(known[row])
            continue
        now_ms = time_ms if clock_ms is None else max(clock_ms, time_ms)
        kept_ms = now_ms - regime.horizon_ms
        if time_ms < kept_ms:
            fates.append("too late")
            continue
        near = [
            (abs(times_ms[other] - time_ms), times_ms[other], other)
            for other in by_id[ids[row]]
            if fates[other] in IN_TIMELINE
            and abs(times_ms[other] - time_ms) <= regime.repeats_ms
            and times_ms[other] >= kept_ms
            and regime.is_raw(times_ms[other], now_ms)
        ]
        if near:
            fates.append("repeat")
            others[row] = min(near)[2]
            continue
        fate: Fate = "counts" if time_ms == now_ms else "dropped" if regime.late == "drop" else "late"
        by_id[ids[row]].append(row)
        there = by_time[time_ms]
        if fate != "dropped" and there and regime.is_raw(time_ms, now_ms):
            others[row] = there[0]
            if regime.collision == "keep_first":
                fate = "dropped" if fate == "late" else "not kept"
            else:
                fate = "collides" if fate == "counts" else "late"
        if row in others and regime.collision == "replace":
            fates[there[0]], others[there[0]], there[0] = "replaced", row, row
        elif fate in IN_TIMELINE:
            there.append(row)
        fates.append(fate)
        clock_ms = now_ms
    return fates, others, before_ms


RANKS = 1 << 20  # More than a rule set has rules: alerts of one event count in the order of the rules
_NEVER = -1  # The generation of a group that does not exist yet: its arrivals count for no later one
_LARGE = 2.0**62  # Smaller sums are far from exceeding 64 bits


def score_again(
    past: Past, target: Arrivals, groups: Sequence[Group], from_ms: int | None, outputs: Iterable[str]
) -> dict[str, list[Row]]:
    """Score the keys of an event in some groups from a time on, None for all; return the rows of some outputs."""
    by_output: dict[str, list[Row]] = {output: [] for output in outputs}
    for scored in score_pieces(_pieces(past, target, groups, from_ms), "evaluations"):
        for output, rows in by_output.items():
            rows += rows_of(scored.table(output), Path(output))
    return by_output


def _pieces(past: Past, target: Arrivals, groups: Sequence[Group], from_ms: int | None) -> Iterator[ArchivePiece]:
    schema, columns, batch_id = target.schema, target.columns, int(target.batches[0])
    keys = [
        " and ".join(
            is_value(schema, counted_field(field), columns[asked_field(field)][0].as_py()) for field in group.fields
        )
        or "true"
        for group in groups
    ]
    keys.append(f'"{ARRIVAL}" = {target.numbers[0]}')
    tests = [f"({') or ('.join(keys)})", f'"{ARRIVAL}" <= {target.numbers[0]}']
    tests += is_between(schema.event_time.field, TimeRange(from_ms))
    rows: pa.Table = past.rows(tests, [*OWN_COLUMNS.names, *schema.all_fields]).sort_by(ARRIVAL).combine_chunks()
    batches = rows[BATCH].to_numpy()
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1)).tolist()
    fills = {group.group_id: (group.timelines, past.fill_of(group, batch_id)) for group in groups}
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        batch_id = int(batches[start])
        rule_set = _rules(past, batch_id, {name: (own, fill) for name, (own, fill) in fills.items() if fill})
        yield ArchivePiece(rows.slice(start, end - start), rule_set, past.terms(batch_id), past.lists(batch_id))


def _rules(past: Past, batch_id: int, filled: Mapping[str, tuple[str, Fill]]) -> RuleSet:
    """Return the rules of a batch as if groups, by id, had existed since the beginning of the history."""
    if not filled:
        return past.rule_set(batch_id)
    begun = max(past.begun_with(fill) for _, fill in filled.values())
    rule_set = past.rule_set(max(batch_id, begun))
    then = {group.group_id: group.generation for group in past.rule_set(batch_id).groups}
    groups = []
    for group in rule_set.groups:
        if group.group_id in filled:
            timelines, fill = filled[group.group_id]
            group = replace(group, timelines=timelines, complete=dict.fromkeys(group.complete, fill.complete))
        elif batch_id < begun:
            group = replace(group, generation=then.get(group.group_id, _NEVER))
        groups.append(group)
    return replace(rule_set, groups=tuple(groups), fills=())


def as_arrivals(past: Past, batch_id: int, rows: list[Row], key: Mapping[str, Any] | None = None) -> Arrivals:
    """Return rows of `alerts` of rules over events as arrivals, only those of one key if given."""
    schema = past.terms(batch_id).event_schema
    of_alerts = alert_schema(schema)
    alerts: list[dict[str, Any]] = []
    for row, arrivals, came_at in past.came(schema, rows):
        batch = int(arrivals.batches[came_at])
        rules = past.rule_set(batch).rules
        rank = next((at for at, rule in enumerate(rules) if rule.rule_id == row["rule_id"]), None)
        if rank is None or rules[rank].on != "events" or rules[rank].asks_alerts:
            continue
        event = row["event"]
        alert = {
            name: next((event[spelling] for spelling in past.spellings(name) if spelling in event), None)
            for name in schema.all_fields
        }
        for name, measure in schema.measures.items():
            alert[name] = None if alert[name] is None else to_scaled(str(alert[name]), measure.scale)
        alert |= {schema.event_id: row["event_id"], schema.event_time.field: row["event_time"]}
        alert |= {ALERT_RULE: row["rule_id"], ALERT_SEVERITY: rules[rank].severity, ALERT_SCORE: row["score"]}
        if key is None or all(alert.get(field) == value for field, value in key.items()):
            own = {
                name: arrivals.columns[name][came_at].as_py() for name in OWN_COLUMNS.names if name in arrivals.columns
            }
            number = own[ARRIVAL] * RANKS + rank
            alerts.append(alert | own | {of_alerts.event_id: row["alert_id"], ARRIVAL: number})
    kinds = {of_alerts.event_id: pa.string(), of_alerts.event_time.field: pa.int64()}
    kinds |= dict(column_types(of_alerts)) | dict.fromkeys(of_alerts.measures, pa.int64())
    columns = pa.schema([*OWN_COLUMNS, *(pa.field(name, kind) for name, kind in kinds.items())])
    return Arrivals(of_alerts, pa.Table.from_pylist(sorted(alerts, key=lambda alert: alert[ARRIVAL]), columns))


@dataclass(frozen=True)
class Target:
    """The event, or the alert as an event, at which a rule is explained."""

    arrivals: Arrivals  # it alone, with all fields
    on: Counted  # what it is

    @property
    def number(self) -> int:
        """Its arrival number, which orders arrivals."""
        return int(self.arrivals.numbers[0])

    @property
    def batch_id(self) -> int:
        """The batch that scored it."""
        return int(self.arrivals.batches[0])

    @property
    def time_ms(self) -> int:
        """When it happened."""
        return int(self.arrivals.times_ms[0])

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.arrivals.ids[0].as_py())

    def value(self, field: str) -> Any:
        """Return one of its fields; a measure as a scaled integer."""
        return self.arrivals.columns[field][0].as_py()


@dataclass(frozen=True)
class KeyHistory:
    """The history of a group's key up to an event, and later arrivals with an earlier time."""

    group: Group  # the group
    arrivals: Arrivals  # all that arrived of the key, from some time on
    fates: Sequence[Fate]  # what became of each
    clock_ms: int | None  # the greatest time that had come before the event; None for none
    others: Mapping[int, int]  # by index, the arrival with which one shares id or time
    target: int  # the index of the event
    regime: Regime  # the settings of its batch
    fill: Fill | None = None  # the fill from whose timelines it is evaluated; None where nothing was filled in
    asks: bool = False  # whether the event counts in the timeline of another key, or in none

    @property
    def fate(self) -> Fate:
        """The fate of the event."""
        return self.fates[self.target]


def find_group(rule_set: RuleSet, rule: Rule, fields: Sequence[str], where: Filter) -> Group | None:
    """Return a group of a rule in some version of the rules, if it exists there."""
    wanted = group_id(fields, where, rule.on, rule_set.first_names)
    groups = rule_set.groups if rule.on == "events" and not asks_alerts(fields) else rule_set.alert_groups
    return next((group for group in groups if group.group_id == wanted), None)


def follow_key(past: Past, target: Target, group: Group, from_ms: int | None) -> KeyHistory:
    """Follow the key of an event in a group."""
    key = {counted_field(field): target.value(asked_field(field)) for field in group.fields}
    crosses = target.on != group.on  # an event asks in a timeline of alerts, before what it raises itself
    asks = crosses or any(target.value(field) != value for field, value in key.items())
    number = target.number * RANKS - 1 if crosses else target.number
    if past.terms(target.batch_id).engine.duplicates.within:
        from_ms = None  # Whether an event is a repeat depends on the events before it.
    assert None not in key.values(), "the event does not belong to the group"
    arrivals = _arrivals_of(past, target, group.on, key, number if asks else None, from_ms)
    came = int(np.searchsorted(arrivals.numbers, number, side="right"))
    fill = past.fill_of(group, target.batch_id)
    # A fill used the rules of the batch with which it began.
    under = arrivals.batches[:came] if fill is None else np.maximum(arrivals.batches[:came], past.begun_with(fill))
    known = _kept_out(past, group, arrivals.take(np.arange(came)), fill, under.tolist())
    regimes = {batch_id: _regime(past, group, batch_id) for batch_id in set(under.tolist())}
    each = [regimes[batch_id] for batch_id in under.tolist()]
    times_ms, ids = arrivals.times_ms[:came].tolist(), arrivals.ids[:came].to_pylist()
    if asks:
        known.setdefault(came - 1, "asks")
    fates, others, clock_ms = decide_fates(times_ms, ids, each, known)
    if fates[-1] == "asks" and clock_ms is not None and target.time_ms < clock_ms:
        fates[-1] = "late" if target.time_ms >= clock_ms - each[-1].horizon_ms else "too late"
    fates += ["not yet"] * (len(arrivals) - came)
    return KeyHistory(group, arrivals, fates, clock_ms, others, came - 1, each[-1], fill, asks)


def _arrivals_of(
    past: Past, target: Target, on: Counted, key: Mapping[str, Any], asks_as: int | None, from_ms: int | None
) -> Arrivals:
    """Return the arrivals of a key, with an event that only asks there placed by its arrival number."""
    schema = target.arrivals.schema
    if on == "alerts":
        tests = [
            f"strpos(event, {sql_text(write_json(value))}) > 0"
            for field, value in key.items()
            if isinstance(value, str) and not field.startswith("alert_")
        ]
        rows = past.results(ALERTS, Selection({}, TimeRange(from_ms), tests))
        arrivals = as_arrivals(past, target.batch_id, rows, key)
        if asks_as is not None:
            own = target.arrivals.rows.to_pylist()[0] | {ARRIVAL: asks_as}
            own |= {arrivals.schema.event_id: target.name}
            both = pa.concat_tables([arrivals.rows, pa.Table.from_pylist([own], arrivals.rows.schema)])
            arrivals = Arrivals(arrivals.schema, both.sort_by(ARRIVAL).combine_chunks())
    else:
        time = quoted_column(schema.event_time.field)
        tests = [is_value(schema, field, value) for field, value in key.items()]
        tests += is_between(schema.event_time.field, TimeRange(from_ms))
        if asks_as is not None:
            tests = [f'({" and ".join(tests)} or "{ARRIVAL}" = {target.number})']
        tests.append(f'({time} <= {sql_moment(target.time_ms)} or "_batch_id" <= {target.batch_id})')
        # With all fields: rules of earlier batches may have needed others than those of this one.
        arrivals = past.events(schema, tests)
    return arrivals


def _kept_out(past: Past, group: Group, arrivals: Arrivals, fill: Fill | None, under: list[int]) -> dict[int, Fate]:
    """Return by index the fates of arrivals that did not reach the timeline, by the rules of batches `under`."""
    known: dict[int, Fate] = dict.fromkeys(np.flatnonzero(~past.passing(group.where, arrivals)).tolist(), "left out")
    if group.on == "events":
        # A group drops events that would make a sum exceed 64 bits.
        reasons = past.refused if fill is None else _refused_again(past, group, arrivals)
        because = f"so group {group.name!r} leaves it out"
        for row, (source, _, position) in enumerate(arrivals.origins):
            if because in reasons.get((source, position), ""):
                known[row] = "refused"
    needed = {batch_id: required_fields(past, group, batch_id) for batch_id in set(under)}
    for name, column in arrivals.columns.items():
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            if name in needed[under[row]]:
                known[row] = "malformed"
    if group.generation > 1 and fill is None:
        since = past.first_batch_of(group.generation)
        known |= dict.fromkeys(np.flatnonzero(arrivals.batches < since).tolist(), "before")
    return known


def required_fields(past: Past, group: Group, batch_id: int) -> frozenset[str]:
    """Return the fields that an arrival of a batch needed to be an event, or alert, for a group."""
    needed = group.needed_fields if group.on == "alerts" else past.rule_set(batch_id).needed_fields
    return past.terms(batch_id).engine.required(needed)


def _refused_again(past: Past, group: Group, arrivals: Arrivals) -> Mapping[tuple[str, int], str]:
    """Score backfilled history, which has no dead letters, to find sums that would exceed 64 bits."""
    measures = (arrivals.columns[name] for name in arrivals.schema.measures if name in arrivals.columns)
    if max((pc.sum(pc.abs(of.cast(pa.float64()))).as_py() or 0.0 for of in measures), default=0.0) < _LARGE:
        return {}
    last = arrivals.take(np.array([len(arrivals) - 1]))
    reasons: dict[tuple[str, int], str] = {}
    for row in score_again(past, last, [group], None, [DEAD_LETTERS])[DEAD_LETTERS]:
        where = (row["source"], row["position"])
        reasons[where] = f"{reasons.get(where, '')}; {row['reason']}".removeprefix("; ")
    return reasons


def _regime(past: Past, group: Group, batch_id: int) -> Regime:
    rule_set, engine = past.rule_set(batch_id), past.terms(batch_id).engine
    groups = rule_set.groups if group.on == "events" else rule_set.alert_groups
    then = next((other for other in groups if other.group_id == group.group_id), group)
    horizon_ms = then.longest_window_ms + engine.allowed_lateness
    if group.on == "alerts":
        return Regime(horizon_ms, engine.late, "keep", JobPrecision())
    schema = past.terms(batch_id).event_schema
    precision = engine.precision.of_group(canonical_group_id(group.fields, group.where, schema), schema)
    return Regime(horizon_ms, engine.late, engine.collision, precision, engine.duplicates.within or 0)

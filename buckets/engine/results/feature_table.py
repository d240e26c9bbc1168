"""Tables of features: one row for each arrival, in arrival order, with columns for the features of all rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import judged_flags
from buckets.engine.values.feature_rules import FEATURES, FIRED, POSITION, RULE, feature_column, feature_types
from buckets.errors import BucketsError
from buckets.events import arrivals as arrived
from buckets.events import conversion
from buckets.events.schema import AttributeType, EventSchema
from buckets.outputs import columns
from buckets.rules.role import fields_of
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

OUTCOMES = ("filtered", "unjudged", "evaluated", "collision", "late", "too_late", "duplicate", "dead_letter")
"""Outcomes of an arrival. If it differs by key, as an event may be late for one key and not for another, the last one
in this order counts."""
UNJUDGED, EVALUATED, COLLISION, LATE, TOO_LATE, DUPLICATE, DEAD_LETTER = range(1, len(OUTCOMES))


class FeatureTable:
    """The feature columns of a rule set; builds their rows."""

    def __init__(
        self, rule_set: RuleSet, schema: EventSchema, flags: bool = False, refuses_others: bool = True
    ) -> None:
        """Choose the columns; with `flags`, each feature has two more that say whether it is exact and warm.

        With `refuses_others`, BucketsError if no rule over events is evaluated, or one is over alerts.
        """
        rules = [rule for rule in rule_set.rules if rule.is_evaluated]
        if refuses_others:
            _check(rules)
        rules = [rule for rule in rules if rule.on == "events" and not rule.asks_alerts]
        named = (feature.group_by or () for rule in rules for feature in rule.features.values())
        grouped = chain(*(rule.group_by for rule in rules), *map(fields_of, named))
        self._rule_set, self._schema = rule_set, schema
        self._keys = tuple(dict.fromkeys(grouped))
        fixed: list[tuple[str, pa.DataType]] = [
            ("event_id", pa.string()),
            ("event_time", columns.TIME),
            (POSITION, pa.int64()),
            *((name, conversion.ARROW_TYPES[schema.attributes[name]]) for name in self._keys),
            ("outcome", pa.string()),
        ]
        of_rules = [described for rule in rules for described in _of_rule(rule, schema, flags)]
        self._sources = [source for _, _, source in of_rules]
        names = _apart([name for name, _ in fixed] + [name for name, _, _ in of_rules])
        kinds = [kind for _, kind in fixed] + [kind for _, kind, _ in of_rules]
        self.columns = pa.schema(list(zip(names, kinds, strict=True)))
        self.beside_columns = pa.schema(list(self.columns)[len(fixed) - 1 :])

    def rows(
        self, pieces: Sequence[pa.RecordBatch], payloads: Mapping[str, list[bytes]], ids: pa.Array | None = None
    ) -> pa.Table:
        """Return the rows of arrivals from `numbered` that were scored together.

        `payloads` are the outputs of a scorer with `features`. With `ids`, only those events have a row, and their
        duplicates are left out.
        """
        first = next((piece.column(POSITION)[0].as_py() for piece in pieces if len(piece)), 0)
        size = sum(map(len, pieces))
        by_rule = _by_rule(payloads)
        outcomes = outcomes_of(payloads, by_rule, first, size)
        if pieces:  # Some only fill timelines.
            judged = np.concatenate([judged_flags(pa.Table.from_batches([piece])) for piece in pieces])
            outcomes = np.maximum(outcomes, ~judged * np.int8(UNJUDGED))
        event_id = self._attribute(pieces, self._schema.event_id, "string")
        chosen = np.arange(size)
        if ids is not None:
            wanted = pc.is_in(event_id, value_set=ids).to_numpy(zero_copy_only=False)
            chosen = np.flatnonzero(wanted & (outcomes != DUPLICATE))
        values = [
            event_id.take(pa.array(chosen)),
            self._times(pieces).take(pa.array(chosen)),
            pa.array(chosen + first),
            *(
                self._attribute(pieces, name, self._schema.attributes[name]).take(pa.array(chosen))
                for name in self._keys
            ),
            pa.array(OUTCOMES).take(pa.array(outcomes[chosen])),
            *self._values(by_rule, chosen, first, size),
        ]
        return pa.table(values, schema=self.columns)

    def beside(self, payloads: Mapping[str, list[bytes]], size: int, first: int = 0) -> pa.Table:
        """Return only outcomes and features of arrivals that were scored together, at positions from `first` on."""
        by_rule = _by_rule(payloads)
        outcomes = pa.array(OUTCOMES).take(pa.array(outcomes_of(payloads, by_rule, first, size)))
        return pa.table([outcomes, *self._values(by_rule, np.arange(size), first, size)], schema=self.beside_columns)

    def _values(self, by_rule: dict[str, list[pa.Table]], chosen: Int64s, first: int, size: int) -> Iterator[pa.Array]:
        """Yield the feature columns at the chosen rows; NULL where a rule was not evaluated."""
        tables: dict[str, tuple[pa.Table, pa.Array]] = {}
        for rule_id, pieces in by_rule.items():
            table = pa.concat_tables([piece.drop_columns([RULE]) for piece in pieces])
            row = np.full(size, -1, np.int64)
            row[table[POSITION].to_numpy() - first] = np.arange(len(table))
            tables[rule_id] = table, pa.array(row[chosen], mask=row[chosen] < 0)
        kinds = self.columns.types[len(self.columns) - len(self._sources) :]
        for source, kind in zip(self._sources, kinds, strict=True):
            if source[0] not in tables:
                yield pa.nulls(len(chosen), kind)
                continue
            table, rows = tables[source[0]]
            yield table[source[1]].combine_chunks().take(rows)

    def _attribute(self, pieces: Sequence[pa.RecordBatch], name: str, kind: AttributeType) -> pa.Array:
        """Return a field of all arrivals in its declared type; null for a value of another type."""
        if name in self._schema.derive:
            events = (arrived.convert(piece, self._schema, frozenset(), counts=False).every for piece in pieces)
            return pa.concat_arrays([pa.array([], conversion.ARROW_TYPES[kind]), *(e.attributes[name] for e in events)])
        column = arrived.field_column(self._schema.field_names.index(name))
        arrays = [conversion.attributes(piece.column(column), kind)[0] for piece in pieces]
        return pa.concat_arrays(arrays) if arrays else pa.array([], conversion.ARROW_TYPES[kind])

    def _times(self, pieces: Sequence[pa.RecordBatch]) -> pa.Array:
        """Return the event times of all arrivals; null for a missing or invalid one."""
        declared = self._schema.event_time
        column = arrived.field_column(self._schema.field_names.index(declared.field))
        arrays = []
        for piece in pieces:
            times_ms, faults = conversion.times_ms(piece.column(column), declared)
            unknown = piece.column(column).is_null().to_numpy(zero_copy_only=False)
            unknown[list(faults)] = True
            arrays.append(pa.array(times_ms, mask=unknown).cast(columns.TIME))
        return pa.concat_arrays(arrays) if arrays else pa.array([], columns.TIME)


def _by_rule(payloads: Mapping[str, list[bytes]]) -> dict[str, list[pa.Table]]:
    """Return the tables of output `FEATURES` by rule."""
    by_rule: dict[str, list[pa.Table]] = {}
    for packed in payloads.get(FEATURES, []):
        table = payload.unpack(packed)
        by_rule.setdefault(table[RULE][0].as_py(), []).append(table)
    return by_rule


def _check(rules: Sequence[Rule]) -> None:
    over_alerts = next((rule for rule in rules if rule.on == "alerts" or rule.asks_alerts), None)
    if over_alerts is not None:
        what = "follows from alerts" if over_alerts.asks_alerts else "is over alerts"
        message = (
            f"rule {over_alerts.rule_id!r}: {what}, and features are of events; leave it out, or name it among "
            "rules of a backtest"
        )
        raise BucketsError(message)
    if not rules:
        message = "rules: none is ACTIVE or SHADOW, so there are no features; name at least one rule that is evaluated"
        raise BucketsError(message)


_Source = tuple[str, str]  # Where a column comes from: a rule, and a column of its output `FEATURES`


def _of_rule(rule: Rule, schema: EventSchema, flags: bool) -> Iterator[tuple[str, pa.DataType, _Source]]:
    for name, kind in feature_types(rule, schema).items():
        column = f"{rule.rule_id}.{name}"
        yield column, kind, (rule.rule_id, feature_column(name, "value"))
        if flags:
            yield f"{column}.exact", pa.bool_(), (rule.rule_id, feature_column(name, "exact"))
            yield f"{column}.warm", pa.bool_(), (rule.rule_id, feature_column(name, "warm"))
    yield f"{rule.rule_id}.{FIRED}", pa.bool_(), (rule.rule_id, FIRED)


def _apart(names: Sequence[str]) -> list[str]:
    """Make names unique regardless of case: later ones get `_2`, `_3` and so on."""
    taken: set[str] = set()
    distinct = []
    for name in names:
        versions = chain([name], (f"{name}_{number}" for number in count(2)))
        free = next(version for version in versions if version.casefold() not in taken)
        taken.add(free.casefold())
        distinct.append(free)
    return distinct


def numbered(arrivals: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """Yield arrivals as those of one source, with positions that count from `first`."""
    for piece in arrivals:
        fields = dict(zip(piece.schema.names, piece.columns, strict=True))
        fields[arrived.SOURCE] = pa.repeat(pa.scalar(""), len(piece))
        fields[arrived.SOURCE_ORDER] = pa.array(np.zeros(len(piece), np.int64))
        fields[arrived.POSITION] = pa.array(np.arange(first, first + len(piece)))
        first += len(piece)
        yield pa.record_batch(fields)


def outcomes_of(
    payloads: Mapping[str, list[bytes]], by_rule: dict[str, list[pa.Table]], first: int, size: int
) -> npt.NDArray[np.int8]:
    """Return the outcome of each arrival, as an index into `OUTCOMES`."""
    outcomes = np.zeros(size, np.int8)

    def note(table: pa.Table, outcome: int) -> None:
        at = table[POSITION].to_numpy() - first
        outcomes[at] = np.maximum(outcomes[at], outcome)

    def of(output: str) -> Iterator[pa.Table]:
        return map(payload.unpack, payloads.get(output, []))

    for table in (each for pieces in by_rule.values() for each in pieces):
        note(table, EVALUATED)
    for table in of(columns.COLLISIONS):
        note(table.filter(pc.invert(table["kept"])), COLLISION)
    for table in of(columns.LATE_EVENTS):
        note(table.filter(pc.invert(table["too_late"])), LATE)
        note(table.filter(table["too_late"]), TOO_LATE)
    for output, outcome in ((columns.DUPLICATES, DUPLICATE), (columns.DEAD_LETTERS, DEAD_LETTER)):
        for table in of(output):
            note(table, outcome)
    return outcomes

"""A backtest: the alerts that a set of rules would have raised on history, by the same engine as in a running job.

pieces in the order of arrival ──► score_pieces, rules and variants at once ──► RaisedAlerts ──► a report

So a backtest of a job's own rules raises exactly the job's alerts, to the last digit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.arrived_rows import ARRIVAL, OWN_COLUMNS, SOURCE_ORDER, archived_and_rounded
from buckets.archive.history import History
from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings, raw_window_fault, raw_window_faults
from buckets.config.lists import list_faults
from buckets.delta.whole_table import is_between, moments_ms
from buckets.duration import DAY_MS, format_duration
from buckets.errors import BucketsError, refuse
from buckets.evaluation import check_rules, checked_kinds, first_version
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.history.backtest.raised_alerts import FoundInPiece, FraudEvents, RaisedAlerts, counted_days
from buckets.history.backtest.report import BacktestReport, Known, RuleResult, VariantResult
from buckets.history.backtest.sweep import NO_SWEEP, SweptRules, parse_sweeps, swept_rules
from buckets.history.scoring import (
    NO_ROWS,
    ArchivePiece,
    ArchiveRows,
    Pieces,
    ScoredPiece,
    score_pieces,
    spans_of,
    with_recorded_lists,
)
from buckets.lists.index import NO_LISTS, ListIndex, Lists
from buckets.moment import ANY_TIME, TimeRange, moment_ms, short_time_text
from buckets.numbers.fixed_point import decimal_text
from buckets.outputs.columns import ALERTS, SHADOW_ALERTS
from buckets.outputs.comparison import Comparison, Event, Sample, compare_events, compared_columns, sample_of
from buckets.outputs.recorded_outputs import RAISED, Selection, output_rows
from buckets.rules.flink_message import check_against_schema
from buckets.rules.revision import names
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.verdicts.confirmed import Amounts, given_fraud


def archive_pieces(history: History, asked: "Backtest") -> Pieces:
    """Return a job's arrivals in pieces, up to the last arrival that counts.

    If rules look into lists that are not given, batches with different versions of these are in different pieces.
    """
    schema, archive = asked.schema, history.archive.under(asked.schema.new_names)
    first, end = 0, None

    def arrival(which: str, span: TimeRange) -> int | None:
        (test,) = is_between(schema.event_time.field, span)
        rows = archive.query(f"select {which}(_arrival) as number from archive where {test}").to_pylist()
        number: int | None = rows[0]["number"]
        return number

    if asked.from_ms is not None:
        earliest = arrival("min", TimeRange(asked.from_ms))
        first = archive.end() if earliest is None else earliest
    if asked.span.until_ms is not None:
        latest = arrival("max", TimeRange(until_ms=asked.span.until_ms))
        end = 0 if latest is None else latest + 1
    there = archive.columns()
    rows = ArchiveRows(archive, [name for name in (*OWN_COLUMNS.names, *schema.all_fields) if name in there])
    needed = asked.needed_lists
    spans = spans_of(history, lambda one, other: not needed or one.lists == other.lists, first, end)
    for span in spans if needed else ():
        check_needed_lists(needed, span.last.lists, f"batch {span.first_batch}")
    settings_of = partial(with_recorded_lists, asked.settings, history.recorded if needed else None)
    return Pieces(rows, spans, settings_of, asked.piece)


def check_needed_lists(needed: Iterable[str], known: Collection[str], where: str) -> None:
    """Refuse rules that look into lists which are missing."""
    missing = sorted(set(needed).difference(known))
    if missing:
        there = ", ".join(sorted(known)) or "none"
        name = missing[0]
        message = f"{where} has no list {name!r}, which rules use; lists there: {there}; give --list {name}=FILE"
        raise BucketsError(message)


def event_pieces(arrivals: Iterable[pa.RecordBatch], asked: "Backtest") -> Iterator[ArchivePiece]:
    """Yield events from outside an archive in pieces, in their order."""
    first = 0
    for rows in arrivals:
        numbers = pa.array(np.arange(first, first + len(rows)))
        made, rounded = archived_and_rounded(rows, asked.schema, 0)
        yield replace(asked.piece(made.append_column(ARRIVAL, numbers), asked.settings), rounded=rounded)
        first += len(rows)


_Recorded = dict[tuple[str, str], dict[Event, Sample]]  # By rule and output, the events with a recorded alert


@dataclass(frozen=True)
class Backtest:
    """A question: which alerts would these rules have raised?"""

    rules: tuple[Rule, ...]  # the rules
    schema: EventSchema  # the event schema
    engine: EngineSettings  # lateness, collisions and precision
    lists: Mapping[str, ListIndex]  # lists that are given
    span: TimeRange = ANY_TIME  # the range of event times to report
    history_ms: int | None = None  # how much before the range is scored; None for everything
    measure: str | None = None  # the measure that is the amount of an event; None for none
    confirmed: Amounts | None = None  # what was fraud; None where that is not known
    swept: SweptRules = NO_SWEEP  # the variants that are tried too
    recorded: Path | None = None  # the folder of the alerts that were raised; None where there is none
    samples: int = 5  # how many keys and events of each kind are shown

    def check(self) -> None:
        """Refuse a question that cannot be answered."""
        check_rules(self.rules, self.schema)
        refuse(raw_window_faults("backtest", self.rules, self.engine, self.schema))
        for variant in self.swept.rules:
            fault = check_against_schema(variant, self.schema)
            reason = fault[1] if fault is not None else raw_window_fault(variant, self.engine, self.schema)
            if reason is not None:
                message = f"sweep: rule {self.swept.written[variant.rule_id].rule_id}: {reason}"
                raise BucketsError(message)
        if not self._evaluated:
            message = "no rule is evaluated, for all are drafts, paused or deleted; make one ACTIVE or SHADOW"
            raise BucketsError(message)
        begin, end = self.span
        if begin is not None and end is not None and begin >= end:
            first, last = short_time_text(begin), short_time_text(end)
            message = f"begin {first} is not before end {last}; no event is in between"
            raise BucketsError(message)
        if self.measure is not None and self.measure not in self.schema.measures:
            known = ", ".join(self.schema.measures) or "none"
            of = f"event schema {self.schema.name!r}"
            message = f"amount: {self.measure!r} is not a measure of {of}; measures: {known}"
            raise BucketsError(message)
        if self.history_ms is None:
            return
        if begin is None:
            message = "--history says how much before --from is read; give --from too"
            raise BucketsError(message)
        precisions = (self.engine.precision, *self.engine.precision.groups)
        widths = [p.resolution for p in precisions] + [tier.resolution for p in precisions for tier in p.tiers]
        coarsest_ms = max(widths) if any(p.tail is not None for p in precisions) else 0
        longest_ms = max(rule.longest_window.begins_ms for rule in (*self.rules, *self.swept.rules))
        if self.history_ms < longest_ms + coarsest_ms:
            message = (
                f"--history {format_duration(self.history_ms)} is shorter than "
                f"{format_duration(longest_ms + coarsest_ms)}, which windows of the rules reach back; give at least "
                "that, or leave it out to read everything"
            )
            raise BucketsError(message)

    @property
    def known(self) -> Known:
        """The figures available to expectations."""
        rules = [rule.rule_id for rule in self._evaluated]
        return Known(rules, self.confirmed is not None, self.recorded is not None, self.measure is not None)

    @cached_property
    def rule_set(self) -> RuleSet:
        """The rules and their variants."""
        return first_version([*self.rules, *self.swept.rules], self.schema, self.engine)

    @property
    def from_ms(self) -> int | None:
        """The first event time that is scored; None for any."""
        begin = self.span.from_ms
        return None if self.history_ms is None or begin is None else begin - self.history_ms

    @property
    def needed_lists(self) -> frozenset[str]:
        """The lists that rules look into and that are not given."""
        return frozenset().union(*(rule.lists for rule in self.rule_set.rules)).difference(self.lists)

    @cached_property
    def settings(self) -> ArchivePiece:
        """A template for all pieces, without rows, with the given lists."""
        terms = Terms(event_schema=self.schema, engine=self.engine, evaluations=False, output="delta")
        return ArchivePiece(NO_ROWS, self.rule_set, terms, self.lists or NO_LISTS)

    def scored_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows of an archive that are scored.

        A field that was declared later is null for earlier arrivals. A piece may hold many batches, and `source_order`
        orders rows only within a batch, so it is replaced by the arrival number.
        """
        for name in self.schema.all_fields:
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
        rows = rows.set_column(rows.column_names.index(SOURCE_ORDER), SOURCE_ORDER, rows[ARRIVAL])
        if self.from_ms is None:
            return rows
        return rows.filter(pc.greater_equal(moments_ms(rows[self.schema.event_time.field]), self.from_ms))

    def piece(self, rows: pa.Table, like: ArchivePiece) -> ArchivePiece:
        """Make a piece from rows of the archive and a piece without rows."""
        return replace(like, rows=self.scored_rows(rows))

    @property
    def _evaluated(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.is_evaluated)

    def _raised(self) -> RaisedAlerts:
        fields = [field for rule in self.rules for field in rule.group_by]
        fraud = None if self.confirmed is None else FraudEvents(self.confirmed, self.schema, self.measure, fields)
        written = {rule.rule_id: rule for rule in self.rules} | dict(self.swept.written)
        return RaisedAlerts(self.schema, self.span, self.measure, written, fraud)

    def found_in(self, scored: ScoredPiece) -> FoundInPiece:
        """Return the data of a piece that the report needs; any process may call it."""
        return self._raised().found_in(scored)

    def run(
        self, pieces: Iterable[ArchivePiece], on_rows: Callable[[int, int], None] = lambda rows, alerts: None
    ) -> BacktestReport:
        """Score pieces, and count the results as `report` does."""
        return self.report(map(self.found_in, score_pieces(pieces)), on_rows)

    def report(
        self, found: Iterable[FoundInPiece], on_rows: Callable[[int, int], None] = lambda rows, alerts: None
    ) -> BacktestReport:
        """Count the results of all pieces, in their order.

        `on_rows` is called after each piece with the rows so far and the events that alerted.
        """
        raised = self._raised()
        fraud = raised.fraud
        for in_piece in found:
            raised.take(in_piece)
            on_rows(raised.arrived, raised.alerted)
        if not len(raised.days):
            raise BucketsError(self._nothing_there(raised))
        if fraud is not None and fraud.confirmed and not fraud.found:
            message = (
                f"none of the {len(fraud.confirmed):,} events of confirmed fraud is among those that were read; see "
                f"that its ids are those of {self.schema.event_id!r}, and that it is of the same time"
            )
            raise BucketsError(message)
        return self._report(raised)

    def _nothing_there(self, raised: RaisedAlerts) -> str:
        if not raised.all_ms:
            why = f" ({raised.bad.text})" if raised.bad.bad else ""
            return f"no event has been read{why}, and without one there is nothing to report"
        first, last = map(short_time_text, raised.all_ms)
        begin, end = ("any time" if time is None else short_time_text(time) for time in self.span)
        return f"no event lies in the range from {begin} to {end}; the events that were read go from {first} to {last}"

    def _report(self, raised: RaisedAlerts) -> BacktestReport:
        begin, end = self.span
        days = counted_days(raised.days, begin, end)
        begin_ms = pc.min(raised.days["first_ms"]).as_py() if begin is None else begin
        end_ms = pc.max(raised.days["last_ms"]).as_py() + 1 if end is None else end
        recorded = None if self.recorded is None else self._recorded(self.recorded)
        active = [rule for rule in self._evaluated if rule.state == "ACTIVE"]
        gone: Counter[str] = Counter()
        for (rule_id, output), samples in (recorded or {}).items():
            if rule_id not in self.known.rules and output != SHADOW_ALERTS:
                gone[rule_id] += len(samples)

        def overlap(rules: list[Rule], rule_id: str | None = None) -> Comparison | None:
            """Compare alerts of rules with the recorded alerts of one rule, or of all."""
            if recorded is None:
                return None
            old: dict[Event, Sample] = {}
            for (recorded_id, output), samples in recorded.items():
                if output == ALERTS if rule_id is None else recorded_id == rule_id:
                    old |= samples
            return compare_events(old, raised.samples(rules), self.samples)

        return BacktestReport(
            begin_ms=begin_ms,
            end_ms=end_ms,
            days=days,
            arrivals=pc.sum(raised.days["events"]).as_py(),
            bad=raised.bad,
            measure=self.measure,
            rules=tuple(
                RuleResult(
                    rule.rule_id,
                    rule.state,
                    rule.sentence(),
                    raised.of_rules([rule]),
                    raised.top_keys(rule, self.samples),
                    overlap([rule], rule.rule_id),
                )
                for rule in self._evaluated
            ),
            total=raised.of_rules(active),
            days_with_alerts=raised.by_day(active),
            overlap=overlap(active),
            gone=dict(sorted(gone.items())),
            sweeps=self.swept.sweeps,
            variants=tuple(
                VariantResult(
                    tried.values,
                    tried.is_as_written,
                    raised.of_variants({name: self.swept.written[name] for name in tried.rules}),
                )
                for tried in self.swept.combinations
            ),
            unknown_fraud=0 if raised.fraud is None else raised.fraud.missing,
            notes=tuple(self._notes(raised, days, Fraction(end_ms - begin_ms, DAY_MS))),
        )

    def _recorded(self, folder: Path) -> _Recorded:
        recorded: _Recorded = {}
        wanted, columns = Selection({}, self.span), compared_columns(self.measure)
        for output in RAISED:
            for row in output_rows(folder, output, columns, wanted):
                sample = sample_of(row, self.measure)
                recorded.setdefault((row["rule_id"], output), {}).setdefault(sample.event, sample)
        # Tables are read in any order; of several rules that fired at one event, the last one's alert is shown.
        return {of_rule: recorded[of_rule] for of_rule in sorted(recorded)}

    def _notes(self, raised: RaisedAlerts, days: Fraction, length: Fraction) -> Iterator[str]:
        """Yield remarks for readers; `length` is the length of the range in days."""
        if not any(rule.state == "ACTIVE" for rule in self._evaluated):
            yield "no rule is ACTIVE, so there is no alert in all; --active takes drafts and rules on trial as ACTIVE"
        if length - days >= 1:
            yield (
                f"figures per day are of {decimal_text(days, 1)} days of the {decimal_text(length, 1)} of the range: "
                "those with at least 5 % of the events of a usual day"
            )
        yield from raised.bad.lines
        fraud = raised.fraud
        if fraud is not None and fraud.missing:
            yield f"{fraud.missing:,} of {len(fraud.confirmed):,} events of confirmed fraud are not in what was read"
        endless = [
            rule.rule_id
            for rule in self._evaluated
            if rule.depends_on_alerts or rule.on == "alerts" or rule.asks_alerts
        ]
        if self.history_ms is not None and endless:
            yield (
                f"alerts before --history count for nothing: those of {names(endless)} may differ from what the whole "
                "history gives, for cooldowns, resets and rules over alerts depend on earlier alerts"
            )


def backtest(
    events: pa.Table,
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings | None = None,
    lists: Lists = NO_LISTS,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    amount: str | None = None,
    fraud: Mapping[str, Decimal | float | str | None] | None = None,
    sweeps: Iterable[str] | str = (),
) -> BacktestReport:
    """Count the alerts that rules would have raised on a table of events.

    Args:
        events: one row an event, in arrival order, as for `evaluate`.
        rules: the rules.
        schema: the event schema.
        engine: lateness, collisions and precision; the defaults of a job if None.
        lists: by name, the lists that rules look into.
        begin: the first event time that is reported; without a zone it is in UTC; None for any.
        end: the first event time that is not reported any more.
        amount: the measure that is the amount of an event; the first one if None.
        fraud: by id, the events that were fraud, with their amounts; None for an event's own amount. A float counts by
            its shortest text.
        sweeps: other numbers that are tried, as in `limit=1000..10000:10`; one, or several.

    Raises:
        BucketsError: a rule does not fit the schema, a sweep or an amount cannot be read, no event is in the range, or
            an argument is of another kind.
    """
    sweeps = [sweeps] if isinstance(sweeps, str) else sweeps
    asked = question(rules, schema, engine, lists, begin, end, amount, fraud, sweeps)
    return asked.run(event_pieces(table_arrivals(events, schema), asked))


def question(
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings | None,
    lists: Lists,
    begin: datetime | None,
    end: datetime | None,
    amount: str | None,
    fraud: Mapping[str, Any] | None,
    sweeps: Iterable[str],
) -> Backtest:
    """Return a program's question, as `backtest` describes it, after checking it."""
    settings = EngineSettings() if engine is None else engine
    chosen = checked_kinds(rules, schema, settings)
    asked = Backtest(
        rules=chosen,
        schema=schema,
        engine=settings,
        lists=lists,
        span=TimeRange(_ms("begin", begin), _ms("end", end)),
        measure=next(iter(schema.measures), None) if amount is None else amount,
        confirmed=None if fraud is None else given_fraud(fraud),
        swept=swept_rules(parse_sweeps(sweeps, chosen), chosen),
    )
    asked.check()
    refuse(list_faults("lists", (*chosen, *asked.swept.rules), lists))
    return asked


def _ms(name: str, moment: datetime | None) -> int | None:
    if not isinstance(moment, datetime | None):
        message = f"{name}: must be a datetime, as in datetime(2026, 1, 31), not {moment!r}"
        raise BucketsError(message)
    return None if moment is None else moment_ms(moment)

"""Drafts a rule with its tests from events that have happened, as the YAML of a rule file.

The limit is the greatest value that the events reach, so that they just cross it: `>=`. The first test says where the
rule fires on them. The second takes one step less, the last digit of an amount or one event, where it does not.
The events may be those of the window of an alert that a job has raised.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from buckets.aggregates.component import AVG, MAX, SUM
from buckets.archive.arrived_rows import ARRIVAL, arrivals_of
from buckets.archive.history import History
from buckets.config.engine import EngineSettings
from buckets.config.job import Job, kept_results
from buckets.config.source import FileSource
from buckets.delta.whole_table import is_between
from buckets.duration import LONGEST_MS, MS_PER_UNIT
from buckets.errors import BucketsError
from buckets.evaluation import Evaluator, Results
from buckets.events import conversion
from buckets.events.arrivals import field_column, parse
from buckets.events.event_file import EventFile, file_arrivals, open_event_file
from buckets.events.schema import EventSchema
from buckets.events.source_files import modified_files
from buckets.moment import TimeRange, iso_text
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, format_scaled, to_scaled
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, full_alert_id, output_rows
from buckets.printable import quoted
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_tests.given_events import EventRow, events_table, say_nothing, written_events
from buckets.rule_tests.results import plain_key
from buckets.rule_tests.tester import engine_of
from buckets.rules.feature import VALUE, Aggregation, Limit, Window
from buckets.rules.filter import Filter, write_filter
from buckets.rules.flink_message import check_against_schema, check_new
from buckets.rules.rule import Rule
from buckets.validation import field_name, first_fault
from buckets.yaml_dialect import InBraces, write_yaml

_COLUMNS = ["alert_id", "rule_id", "key", "event_id", "window_start", "window_end"]


@dataclass(frozen=True)
class PastAlert:
    """An alert of a job."""

    alert_id: str
    rule_id: str
    key: dict[str, Any]
    event_id: str
    window_start: int
    window_end: int


def past_alert(job: Job, alert_id: str) -> PastAlert:
    """Return an alert from the tables of a job or its audit, by its id or a beginning of it that no other has.

    BucketsError if there is no such alert or several, or there are no tables.
    """
    folder = kept_results(job)
    if folder is None:
        message = (
            "the alerts of this job go to topics, and `audit` keeps no tables of them; name a file with --from-file"
        )
        raise BucketsError(message)
    wanted = Selection({"alert_id": [full_alert_id(folder, alert_id)]})
    for output in ALERT_OUTPUTS:
        for row in output_rows(folder, output, _COLUMNS, wanted):
            return PastAlert(**row)
    message = f"there is no alert {quoted(alert_id)} in {folder}; see the column alert_id of its tables"
    raise BucketsError(message)


def events_of_alert(alert: PastAlert, job: Job, file: Path | None) -> list[EventRow]:
    """Return the events of the key of an alert in its window, in arrival order, up to its own.

    They come from a file or, without one, from the archive of the job or the files of its source. BucketsError if they
    cannot be read, or the alert's own event is not among them.
    """
    schema = job.event_schema
    column = field_column(schema.field_names.index(schema.event_time.field))
    wanted = plain_key(alert.key).items()
    rows: list[EventRow] = []
    for arrivals in _arrivals(alert, job, file):
        times_ms, _ = conversion.times_ms(arrivals.column(column), schema.event_time)
        inside = (times_ms >= alert.window_start) & (times_ms <= alert.window_end)
        if not inside.any():
            continue
        events, _ = parse(arrivals.filter(pa.array(inside)), schema, frozenset())  # what is no event is passed over
        for row in written_events(events, schema):
            if wanted <= row.items():
                rows.append(row)
                if row[schema.event_id] == alert.event_id:
                    return rows
    origin = str(file) if file is not None else job.settings.source.name
    message = f"event {quoted(alert.event_id)} of the alert is not in {origin}; name a file that has it with --events"
    raise BucketsError(message)


def _arrivals(alert: PastAlert, job: Job, file: Path | None) -> Iterator[pa.RecordBatch]:
    source, schema = job.settings.source, job.event_schema
    if file is not None:
        yield from file_arrivals(open_event_file(file, schema), schema)
    elif job.settings.archive is not None:
        tests = is_between(schema.event_time.field, TimeRange(alert.window_start, alert.window_end + 1))
        sql = f"select * from archive where {' and '.join(tests)} order by {ARRIVAL}"
        yield from arrivals_of(History.open(job).archive.under(schema.new_names).query(sql), schema)
    elif isinstance(source, FileSource):
        files = modified_files(source.folder, source.subfolders)
        for path, _ in sorted(files, key=lambda file: (file[1] or 0, str(file[0]))):
            try:
                yield from file_arrivals(EventFile(path, source.file_format, folder=source.folder), schema)
            except OSError as error:
                message = f"events {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
                raise BucketsError(message) from None
    else:
        message = f"the events of {source.name} are not searched; name a file that has them with --events"
        raise BucketsError(message)


_EXACT = Context(prec=60)  # Digits enough for any value
_MOST_STEPS = 100  # How often a step less is tried, where the rule still fires after the first


def _shortest(value: Decimal) -> Decimal:
    """Return a value without zeros at the end of its digits after the point."""
    whole = value.to_integral_value()
    return whole if whole == value else value.normalize(_EXACT)


@dataclass(frozen=True)
class _DraftedTest:
    """A test of events, and what a rule makes of them when it is in force."""

    name: str
    rule: Rule
    rows: Sequence[EventRow]
    schema: EventSchema
    engine: EngineSettings

    @cached_property
    def results(self) -> Results:
        """What comes out."""
        active = self.rule.model_copy(update={"state": "ACTIVE"})
        # An event that the rule would not see is no example of it.
        strict = self.engine.model_copy(update={"nulls": "strict"})
        evaluator = Evaluator([active], self.schema.with_written_ids, engine_of(strict, [active], self.schema))
        return evaluator.recorded(events_table(self.rows, self.schema), say_nothing)

    def written(self) -> dict[str, Any]:
        """Return it as a rule file has it, which expects what came out."""
        id_field, time_field, rows = self.schema.event_id, self.schema.event_time.field, self.rows
        times, _ = conversion.times_ms(pa.array([row[time_field] for row in rows]), self.schema.event_time)
        start_ms = int(times.min())
        relative = "at" not in self.schema.field_names and int(times.max()) - start_ms <= LONGEST_MS
        fields = [name for name in self.schema.field_names if name not in (id_field, time_field)]
        shared = {
            name: rows[0][name]
            for name in fields
            if name in rows[0] and all(row.get(name) == rows[0][name] for row in rows)
        }
        given = []
        for row, time_ms in zip(rows, times.tolist(), strict=True):
            own = {name: row[name] for name in fields if name in row and name not in shared}
            time = {"at": _offset(time_ms - start_ms)} if relative else {time_field: row[time_field]}
            given.append(InBraces({id_field: row[id_field]} | own | time))
        return {
            "name": self.name,
            **({"start": iso_text(start_ms)} if relative else {}),
            **({"defaults": InBraces(shared)} if shared else {}),
            "given": given,
            "expect": self._expected(),
        }

    def _expected(self) -> dict[str, Any]:
        ids = [row[self.schema.event_id] for row in self.rows]
        times, collisions = Counter(ids), self.results.collisions
        # An event is named by its number where its id is not clear.
        references = [str(at) if times[one] > 1 or one.isdecimal() else one for at, one in enumerate(ids, 1)]
        alerts = [
            InBraces({"event": references[row["position"]], "value": format(_shortest(row["value"]), "f")})
            for row in self.results.alerts.to_pylist()
        ]
        tables = {
            "late_events": self.results.late_events,
            "duplicates": self.results.duplicates,
            "collisions_not_kept": collisions.filter(pc.invert(collisions["kept"])),
        }
        positions = {name: sorted(set(table["position"].to_pylist())) for name, table in tables.items()}
        named = {name: [references[at] for at in places] for name, places in positions.items() if places}
        return {"alerts": alerts, **named}


def _offset(milliseconds: int) -> str:
    steps = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, MS_PER_UNIT[unit])
        steps += [f"{number}{unit}"] if number else []
    return " + ".join(steps) or "0s"


@dataclass(frozen=True)
class RuleForm:
    """A rule of one aggregate without its limit."""

    rule_id: str
    description: str
    group_by: tuple[str, ...]
    aggregate: Aggregation
    window: Window
    where: Filter = ()

    def rule(self, limit: Decimal, schema: EventSchema) -> Rule:
        """Return the rule with a limit that values reach from below; BucketsError if it is not valid."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["where"] = write_filter(self.where)
        try:
            rule = Rule(
                state="DRAFT", limit=Limit.model_validate({"operator": ">=", "value": format(limit, "f")}), **fields
            )
        except ValidationError as error:
            message = f"rule {self.rule_id!r}: {first_fault(error)[1]}"
            raise BucketsError(message) from None
        fault = check_new(rule) or check_against_schema(rule, schema)
        if fault is not None:
            message = f"rule {self.rule_id!r}: {field_name(fault[0])}: {fault[1]}"
            raise BucketsError(message)
        return rule


def draft(form: RuleForm, rows: Sequence[EventRow], schema: EventSchema, engine: EngineSettings) -> str:
    """Return a rule file with one rule and two tests.

    BucketsError if the rule is not valid, an event is malformed, or no limit tells these events from one step less.
    """
    first = form.rule(Decimal(0), schema)
    needed = {schema.event_id, schema.event_time.field, *first.group_by, *first.filter_fields, first.measure}
    rows = [{name: value for name, value in row.items() if name in needed} for row in rows]
    name = "fires on the events that it was drafted from"
    fires = _just_crossed(form, _DraftedTest(name, first, rows, schema, engine))
    tests = (write_yaml(test.written()).replace("\n", "\n    ") for test in (fires, _one_step_less(fires)))
    return f"{rules_text([fires.rule])}\ntests:\n" + "".join(f"  - {test}\n" for test in tests)


def _just_crossed(form: RuleForm, test: _DraftedTest) -> _DraftedTest:
    """Return the test with the rule whose limit is the greatest value of these events."""
    results, schema = test.results, test.schema
    if results.dead_letters.num_rows:
        first = results.dead_letters.to_pylist()[0]
        message = f"event {first['position'] + 1} is malformed: {first['reason']}; correct it or leave it out"
        raise BucketsError(message)
    values: list[Decimal] = results.evaluations["value"].drop_null().to_pylist()
    if not values:
        what = f"is evaluated at none of the {len(test.rows):,} events"
        message = f"rule {form.rule_id!r} {what}; name others, or leave out `where`"
        raise BucketsError(message)
    greatest = max(values)
    if form.aggregate.function == "count" and greatest == 1:
        message = "no window holds more than one of these events, and a count of one is no limit; name more events"
        raise BucketsError(message)
    fires = replace(test, rule=form.rule(_shortest(greatest), schema))
    if not fires.results.alerts.num_rows:  # the average is a little below the one that is shown
        last_digit = Decimal((0, (1,), -schema.largest_scale - AVERAGE_EXTRA_DIGITS))
        fires = replace(test, rule=form.rule(_shortest(greatest - last_digit), schema))
    return fires


def _one_step_less(fires: _DraftedTest) -> _DraftedTest:
    rule, schema, less = fires.rule, fires.schema, fires
    for _ in range(_MOST_STEPS):
        fired = set(less.results.alerts["position"].to_pylist())
        if not fired:
            step = "one event" if rule.measure is None else format_scaled(1, schema.measures[rule.measure].scale)
            return replace(less, name=f"does not fire with {step} less")
        if rule.measure is None:
            rows = [row for at, row in enumerate(less.rows) if at not in fired]
        else:
            rows = [_lowered(row, rule, at in fired, schema) for at, row in enumerate(less.rows)]
        less = replace(less, rows=rows)
    message = f"rule {rule.rule_id!r}: no limit tells these events from the same ones a step lower; leave out `where`"
    raise BucketsError(message)


def _lowered(row: EventRow, rule: Rule, fired: bool, schema: EventSchema) -> EventRow:
    """Return an event with an amount that makes the value lower where the rule has fired."""
    assert rule.measure is not None
    assert rule.limit is not None
    operation, scale = rule.features[VALUE].aggregate.operation, schema.measures[rule.measure].scale
    scaled = to_scaled(row[rule.measure], scale)
    if operation in (SUM, AVG):
        lower = scaled - fired
    else:
        below = to_scaled(format(rule.limit.value, "f"), scale) - 1
        lower = below if (scaled > below if operation == MAX else fired) else scaled
    return row | {rule.measure: format_scaled(lower, scale)}

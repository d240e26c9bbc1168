"""Drafts a rule with its tests from events that have happened.

The limit is the greatest value that the events reach, so that they just cross it: `>=`. The first test says where the
rule fires on them. The second takes one step less, the last digit of an amount or one event, where it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from pydantic import ValidationError

from buckets.aggregates.operation import AVG, MAX, SUM
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.evaluation import Evaluator
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, format_scaled, to_scaled
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_tests.draft_text import DraftedTest, shortest, tests_text
from buckets.rule_tests.event_rows import EventRow
from buckets.rule_tests.given_events import events_table, say_nothing
from buckets.rule_tests.tester import engine_of
from buckets.rules.filter import Filter, write_filter
from buckets.rules.rule import Rule
from buckets.rules.rule_faults import check_against_schema, check_new
from buckets.rules.short_form import VALUE, Aggregation, Limit
from buckets.rules.window import Window
from buckets.validation import field_name, first_fault

_MOST_STEPS = 100
"""How often a step less is tried, where the rule still fires after the first."""


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
        """Return the rule with a limit that values reach from below.

        Raises:
            BucketsError: it is not valid.
        """
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

    Raises:
        BucketsError: the rule is not valid, an event is malformed, or no limit tells these events from one step less.
    """
    first = form.rule(Decimal(0), schema)
    needed = {schema.event_id, schema.event_time.field, *first.group_by, *first.filter_fields, first.measure}
    rows = [{name: value for name, value in row.items() if name in needed} for row in rows]
    rule, fires = _just_crossed(form, rows, schema, engine)
    less = _one_step_less(rule, fires, schema, engine)
    return f"{rules_text([rule])}\n{tests_text([fires, less], schema)}"


def _tested(
    name: str, rule: Rule, rows: Sequence[EventRow], schema: EventSchema, engine: EngineSettings
) -> DraftedTest:
    """Return a test of events, with what a rule makes of them when it is in force."""
    active = rule.model_copy(update={"state": "ACTIVE"})
    strict = engine.model_copy(update={"nulls": "strict"})  # An event that the rule would not see is no example of it.
    evaluator = Evaluator([active], schema.with_written_ids, engine_of(strict, [active], schema))
    return DraftedTest(name, rows, evaluator.recorded(events_table(rows, schema), say_nothing))


def _just_crossed(
    form: RuleForm, rows: Sequence[EventRow], schema: EventSchema, engine: EngineSettings
) -> tuple[Rule, DraftedTest]:
    """Return the rule whose limit is the greatest value of these events, and the test of them."""
    name = "fires on the events that it was drafted from"
    results = _tested(name, form.rule(Decimal(0), schema), rows, schema, engine).results
    if results.dead_letters.num_rows:
        first = results.dead_letters.to_pylist()[0]
        message = f"event {first['position'] + 1} is malformed: {first['reason']}; correct it or leave it out"
        raise BucketsError(message)
    values: list[Decimal] = results.evaluations["value"].drop_null().to_pylist()
    if not values:
        message = (
            f"rule {form.rule_id!r} is evaluated at none of the {len(rows):,} events; name others, or leave out `where`"
        )
        raise BucketsError(message)
    greatest = max(values)
    if form.aggregate.function == "count" and greatest == 1:
        message = "no window holds more than one of these events, and a count of one is no limit; name more events"
        raise BucketsError(message)
    rule = form.rule(shortest(greatest), schema)
    fires = _tested(name, rule, rows, schema, engine)
    if not fires.results.alerts.num_rows:  # the average is a little below the one that is shown
        last_digit = Decimal((0, (1,), -schema.largest_scale - AVERAGE_EXTRA_DIGITS))
        rule = form.rule(shortest(greatest - last_digit), schema)
        fires = _tested(name, rule, rows, schema, engine)
    return rule, fires


def _one_step_less(rule: Rule, fires: DraftedTest, schema: EventSchema, engine: EngineSettings) -> DraftedTest:
    """Return a test of the same events one step below the limit."""
    step = "one event" if rule.measure is None else format_scaled(1, schema.measures[rule.measure].scale)
    less = replace(fires, name=f"does not fire with {step} less")
    for _ in range(_MOST_STEPS):
        fired = set(less.results.alerts["position"].to_pylist())
        if not fired:
            return less
        if rule.measure is None:
            rows: Sequence[EventRow] = [row for at, row in enumerate(less.rows) if at not in fired]
        else:
            rows = [_lowered(row, rule, at in fired, schema) for at, row in enumerate(less.rows)]
        less = _tested(less.name, rule, rows, schema, engine)
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

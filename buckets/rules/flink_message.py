"""A rule or a command of Apache Flink's fraud detection demo, as a JSON message or as a plain line of nine parts.

{"ruleId": 1, "ruleState": "ACTIVE", "groupingKeyNames": ["payeeId"], "aggregateFieldName": "paymentAmount",
"aggregatorFunctionType": "SUM", "limitOperatorType": "GREATER", "limit": 500, "windowMinutes": 20}
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from buckets.events.schema import EventSchema
from buckets.expressions.expression import THIS
from buckets.printable import blank_letter, misleading_character, short_line, unseen_character
from buckets.rules.condition import SqlFilter, SqlScore, check_condition_fits, check_score_fits
from buckets.rules.feature import ALERT_FIELDS, Limit, Operator, alert_schema, field_kind, schema_on
from buckets.rules.filter import Filter, canonical_filter, check_this_filter, filter_fields
from buckets.rules.role import AS, asked_field, counted_field, fields_of
from buckets.rules.rule import LARGEST_VERSION, VARIANT_MARK, Rule, tag_fault
from buckets.validation import Checked, Location, field_name, first_fault

Fault = tuple[Location, str]  # The location of a field in a rule, and what is wrong with it


def check_new(rule: Rule) -> Fault | None:
    """Return the first fault in a new rule's id, version or texts, if any; rules in checkpoints are not checked again.

    Keys of changes in a topic begin with `!`, and names appear in messages, tables and terminals.
    """
    return next(_new_faults(rule), None)


def _new_faults(rule: Rule) -> Iterator[Fault]:
    name = rule.rule_id
    if name.startswith(VARIANT_MARK):
        yield ("rule_id",), f"{name!r} begins with !, as only the keys of changes do; give the rule another name"
    if name.strip() != name:
        yield ("rule_id",), f"{name!r} begins or ends with a blank; leave it out"
    if not name.isprintable():
        yield ("rule_id",), f"{name!r} holds a character that is neither visible nor a plain blank; leave it out"
    if rule.version > LARGEST_VERSION:
        yield ("version",), f"{rule.version} is more than {LARGEST_VERSION}; write a smaller one"
    for index, tag in enumerate(rule.tags):
        fault = tag_fault(tag)
        if fault is not None:
            yield ("tags", str(index)), fault
    for location, character in _hidden(rule):
        if character is not None:
            yield location, f"holds {character}, which cannot be seen; leave it out"


def _hidden(rule: Rule) -> Iterator[tuple[Location, str | None]]:
    """Yield the invisible characters in each text of a rule."""
    yield ("rule_id",), blank_letter(rule.rule_id)
    filters: dict[Location, Filter] = {("where",): rule.where, ("when",): rule.when}
    filters |= {("score",): rule.score} if isinstance(rule.score, SqlScore) else {}
    names: list[tuple[Location, str]] = [(("group_by",), field) for field in rule.group_by]
    names += [(("tags", str(index)), tag) for index, tag in enumerate(rule.tags)]
    for name, feature in rule.features.items():
        filters |= {("features", name, *location): where for location, where in feature.filters.items()}
        names.append((("features", name, "step_field"), feature.step_field or ""))
        names += [(("features", name, "group_by"), field) for field in fields_of(feature.group_by or ())]
        names.append((rule.written_at("features", name, "of"), feature.of or ""))
    for location, where in filters.items():
        texts = [where.text] if isinstance(where, SqlFilter) else [text for test in where for text in test.operands]
        yield from ((location, misleading_character(text)) for text in texts)
        names += [(location, field) for field in filter_fields(where)]
    yield from ((location, unseen_character(name)) for location, name in names)
    yield ("description",), unseen_character(rule.description, "\n\t")
    for policy in rule.policies:
        yield from (((policy.field, *within), unseen_character(text, "\n\t")) for within, text in policy.texts())


def check_against_schema(rule: Rule, schema: EventSchema) -> Fault | None:
    """Return the first misfit to the event schema, if any; a rule over alerts has to fit the schema of alerts."""
    try:
        counted = schema_on(rule.on, schema)
    except ValueError as error:
        return ("on",), str(error)
    return next(_faults(rule, counted), None)


def _faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    yield from _grouping_faults(rule.group_by, ("group_by",), schema)
    if rule.aggregate is not None and rule.aggregate.measure is not None:
        measure = rule.aggregate.measure
        if measure not in schema.measures:
            known = f"declared measures: {', '.join(schema.measures) or 'none'}"
            shown = short_line(repr(measure))
            yield ("aggregate", "measure"), f"{shown} is not a measure of event schema {schema.name!r}; {known}"
    yield from _filter_faults(rule.where, ("where",), schema)
    kinds = {name: feature.kind(schema) for name, feature in rule.features.items()}
    if not rule.is_short:
        yield from _feature_faults(rule, schema)
        yield from _misfit("when", lambda: check_condition_fits(rule.when, kinds, schema))
    if isinstance(rule.score, SqlScore):
        score = rule.score
        yield from _misfit("score", lambda: check_score_fits(score, kinds, schema))
    yield from _rules_list_faults(rule, schema)
    for policy in rule.policies:
        for within, fault in policy.faults(rule.group_by, schema):
            yield (policy.field, *within), fault


def _feature_faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    for name, feature in rule.features.items():
        location = ("features", name)
        try:
            counted = schema if feature.on is None else alert_schema(schema)
        except ValueError as error:
            yield (*location, "on"), str(error)
            return
        if name in schema.all_fields:
            yield location, f"{name} is also a field of event schema {schema.name!r}; give the feature another name"
        yield from _grouping_faults(feature.group_by or (), (*location, "group_by"), counted)
        if feature.on is not None:  # The event asks by fields of its own.
            yield from _grouping_faults(map(asked_field, feature.group_by or ()), (*location, "group_by"), schema)
            yield from _grouping_faults([feature.of or ""] if feature.aggregate.by_value else [], location, schema)
        if feature.step_field is not None and counted.attributes.get(feature.step_field) != "string":
            shown = short_line(repr(feature.step_field))
            yield (
                (*location, "step_field"),
                f"{shown} is not an attribute of event schema {counted.name!r} that is a text",
            )
        for within, where in feature.filters.items():
            yield from _filter_faults(where, (*location, *within), counted)
            if feature.on is not None:
                for field in map(THIS.__add__, ALERT_FIELDS):
                    if field in filter_fields(where):
                        yield (*location, *within), f"{field}: an event has none, only alerts have; leave out `this.`"
        takes = feature.aggregate.takes
        declared = [each for each in (*counted.attributes, *counted.measures) if field_kind(each, counted) in takes]
        if feature.of is not None and feature.of not in declared:
            shown, known = short_line(repr(feature.of)), ", ".join(declared) or "none"
            kinds = "field" if len(takes) > 2 else "number"
            reason = f"{shown} is not a {kinds} of event schema {counted.name!r}; {feature.function} can be of: {known}"
            if feature.of in counted.arrays:
                reason = f"{shown} is an array; {feature.function} can be of: {known}"
            yield (*location, "of", *(["of"] if feature.periods else [])), reason


def _rules_list_faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    keys: list[tuple[tuple[str, ...], str]] = [(("then", "key"), rule.then.key)] if rule.then is not None else []
    keys += [(("when",), str(test.operands[0].value)) for test in rule.rules_list_tests]
    for location, key in keys:
        if schema.attributes.get(key) != "string":
            texts = ", ".join(name for name, kind in schema.attributes.items() if kind == "string") or "none"
            yield location, f"{short_line(repr(key))} cannot be the key of a list that rules write; one of {texts} can"


def _misfit(field: str, check: Callable[[], None]) -> Iterator[Fault]:
    try:
        check()
    except ValueError as error:
        yield (field,), short_line(str(error))


def _grouping_faults(named: Iterable[str], location: Location, schema: EventSchema) -> Iterator[Fault]:
    fields, declared = list(named), f"declared attributes: {', '.join(schema.attributes) or 'none'}"
    for field in fields_of(fields):
        if field not in schema.attributes:
            shown = short_line(repr(field))
            reason = "an array" if field in schema.arrays else f"not an attribute of event schema {schema.name!r}"
            hint = "; between two fields write AS in capitals" if AS.lower() in field.lower() else f"; {declared}"
            yield location, f"{shown} is {reason}{hint}"
    for asked, counted in ((asked_field(field), counted_field(field)) for field in fields):
        kinds = schema.attributes[asked], schema.attributes[counted]
        if kinds[0] != kinds[1]:
            yield location, f"{asked} is a {kinds[0]} and {counted} a {kinds[1]}; both have to be of one type"


def _filter_faults(where: Filter, location: Location, schema: EventSchema) -> Iterator[Fault]:
    try:
        if isinstance(where, SqlFilter) and where.names_this:
            if location == ("where",):
                message = "`this` is the event itself, and goes into the filter of a feature"
                raise ValueError(message)
            check_this_filter(where, schema)
        canonical_filter(where, schema)
    except ValueError as error:
        yield location, short_line(str(error))


COUNT, COUNT_WITH_RESET = "COUNT_FLINK", "COUNT_WITH_RESET_FLINK"
"""Names of no field, which stand for the number of events."""
_OperatorName = Literal["EQUAL", "NOT_EQUAL", "GREATER_EQUAL", "LESS_EQUAL", "GREATER", "LESS"]
OPERATORS: dict[str, Operator] = {
    "EQUAL": "=",
    "NOT_EQUAL": "!=",
    "GREATER_EQUAL": ">=",
    "LESS_EQUAL": "<=",
    "GREATER": ">",
    "LESS": "<",
}
CONTROLS = {
    "CLEAR_STATE_ALL": "clear_all_state",
    "CLEAR_STATE_ALL_STOP": None,
    "DELETE_RULES_ALL": "delete_all",
    "EXPORT_RULES_CURRENT": "export",
}
"""The meaning of each command here. A clear is immediate, so nothing can be stopped."""
_NAMES = {
    "rule_id": "ruleId",
    "group_by": "groupingKeyNames",
    "aggregate": "aggregateFieldName",
    "window": "windowMinutes",
    "features": "unique",
    "when": "limit",
    "value": "limit",
}
"""The demo's field for a field of a rule, if its name differs."""
_OF_A_RULE = (
    "grouping_key_names",
    "aggregate_field_name",
    "aggregator_function_type",
    "limit_operator_type",
    "limit",
    "window_minutes",
)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_DIFFERENT = "different_values"


def _whole(value: Any) -> Any:
    """Return a whole number, also from text, as the demo's web page writes it."""
    if value is None:
        return None
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if _WHOLE.fullmatch(text) is None:
        message = f"{short_line(repr(value))} is not a whole number"
        raise ValueError(message)
    return int(text)


def _limit_text(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        message = f"{short_line(repr(value))} is not a decimal number"
        raise ValueError(message)
    return None if value is None else str(value)


Whole = Annotated[int | None, BeforeValidator(_whole)]
_Control = Literal["CLEAR_STATE_ALL", "CLEAR_STATE_ALL_STOP", "DELETE_RULES_ALL", "EXPORT_RULES_CURRENT"]


class FlinkMessage(Checked):
    """A message as the demo writes it; what it leaves out may also be null.

    Attributes:
        rule_id: the rule; a command needs none.
        rule_state: what becomes of the rule, or CONTROL.
        grouping_key_names: by which fields it groups; none: all events together.
        unique: of which fields different values are counted.
        aggregate_field_name: the aggregated field, or a count.
        aggregator_function_type: the function.
        limit_operator_type: how the value is compared with the limit.
        limit: the limit, as it is written.
        window_minutes: how far back the window reaches.
        window_millis: the same in ms, which the demo adds to the rules that it exports.
        control_type: the command.
    """

    model_config = ConfigDict(alias_generator=to_camel)

    rule_id: Whole = None
    rule_state: Literal["ACTIVE", "PAUSE", "DELETE", "CONTROL"]
    grouping_key_names: tuple[str, ...] | None = None
    unique: tuple[str, ...] | None = None
    aggregate_field_name: str | None = None
    aggregator_function_type: Literal["SUM", "AVG", "MIN", "MAX"] | None = None
    limit_operator_type: _OperatorName | None = None
    limit: Annotated[str | None, BeforeValidator(_limit_text)] = None
    window_minutes: Whole = None
    window_millis: Whole = None
    control_type: _Control | None = None

    def _faults(self) -> Iterator[str]:
        if self.rule_state == "CONTROL":
            if self.control_type is None:
                yield f"controlType: is missing; a CONTROL message has one of {', '.join(get_args(_Control))}"
            return
        if self.control_type is not None:
            yield f"controlType: goes with ruleState CONTROL, not with {self.rule_state}"
        if self.rule_id is None:
            yield "ruleId: is missing"
        if self.rule_state != "DELETE":
            yield from self._faults_of_rule()

    def _faults_of_rule(self) -> Iterator[str]:
        for name in (name for name in _OF_A_RULE if getattr(self, name) is None):
            yield f"{to_camel(name)}: is missing; a rule that is {self.rule_state} is written whole"
        if self.window_minutes is not None and self.window_minutes < 1:
            yield f"windowMinutes: {self.window_minutes} is less than 1; a window is at least a minute long"
        if self.window_millis not in (None, (self.window_minutes or 0) * 60_000):
            yield f"windowMillis: {self.window_millis} is not windowMinutes, {self.window_minutes}, in milliseconds"
        if self.is_count and self.aggregator_function_type != "SUM":
            function = self.aggregator_function_type
            yield f"aggregatorFunctionType: {self.aggregate_field_name} counts with SUM; {function} of ones is 1"
        if self.unique and (self.aggregate_field_name != COUNT or len(self.unique) > 1):
            yield (
                f"unique: the different values of one field are counted with {COUNT}; leave it empty for what the demo "
                "does with it, which is nothing"
            )

    @property
    def is_count(self) -> bool:
        """Whether it counts events."""
        return self.aggregate_field_name in (COUNT, COUNT_WITH_RESET)

    @property
    def name(self) -> str:
        """The name of its rule here."""
        return str(self.rule_id)

    def rule(self) -> Rule:
        """Return the rule, ACTIVE or PAUSE; ValueError names the demo's field if it is invalid."""
        try:
            rule = Rule.model_validate(self._fields())
        except ValidationError as error:
            location, fault = first_fault(error)
            reason = fault.removeprefix(f"{field_name(location)}: ")
            raise ValueError(_in_its_words((tuple(map(str, location)), reason))) from None
        fault_of_names = check_new(rule)
        if fault_of_names is not None:
            raise ValueError(_in_its_words(fault_of_names))
        return rule

    def _fields(self) -> dict[str, Any]:
        window, limit = f"{self.window_minutes}m", {"operator": OPERATORS[str(self.limit_operator_type)]}
        fields: dict[str, Any] = {"rule_id": self.name, "state": self.rule_state, "group_by": self.grouping_key_names}
        if self.unique:
            # The limit is read as any other, so that it is a number in the condition too.
            value = Limit.model_validate(limit | {"value": self.limit}).model_dump(mode="json")["value"]
            feature = {"function": "count_distinct", "of": self.unique[0], "window": window}
            return fields | {"features": {_DIFFERENT: feature}, "when": f"{_DIFFERENT} {limit['operator']} {value}"}
        aggregate: dict[str, Any] = {"function": "count"}
        if not self.is_count:
            function = str(self.aggregator_function_type).lower()
            aggregate = {"function": function, "measure": self.aggregate_field_name}
        fields |= {"aggregate": aggregate, "window": {"length": window}, "limit": limit | {"value": self.limit}}
        return fields | {"reset_on_alert": self.aggregate_field_name == COUNT_WITH_RESET}


def _in_its_words(fault: Fault) -> str:
    """Return a fault of a rule with the demo's field that causes it."""
    location, reason = fault
    return f"{_NAMES.get(str(location[0]), location[0])}: {reason}" if location else reason


def schema_fault(rule: Rule, schema: EventSchema) -> str | None:
    """Return the first misfit of a message's rule to the event schema, if any, at the demo's field."""
    fault = check_against_schema(rule, schema)
    return None if fault is None else _in_its_words(fault)


_FIELDS = frozenset(to_camel(name) for name in FlinkMessage.model_fields) - {"limit"}
"""Fields that only the demo's messages have."""


def is_flink_object(data: Mapping[str, Any]) -> bool:
    """Return whether an object is a message of the demo; ValueError if it mixes fields of both forms."""
    theirs = next((name for name in data if name in _FIELDS), None)
    ours = next((name for name in data if name in ("rule_id", "change")), None)
    if theirs is not None and ours is not None:
        message = (
            f"holds {theirs!r}, a field of the Flink demo, and {ours!r}, one of buckets; write one of the two forms"
        )
        raise ValueError(message)
    return theirs is not None


def parse_flink_object(data: Mapping[str, Any]) -> FlinkMessage:
    """Return an object as a message of the demo; ValueError names an invalid field."""
    try:
        return FlinkMessage.model_validate(data)
    except ValidationError as error:
        raise ValueError(first_fault(error, model=FlinkMessage)[1]) from None


_BEGIN = re.compile(r"\s*\(?\s*-?\d+\s*\)?\s*,\s*\(?\s*[A-Za-z]", re.ASCII)


def is_plain_line(text: str) -> bool:
    """Return whether a text looks like a rule in the demo's plain format."""
    return _BEGIN.match(text) is not None


def parse_plain_line(line: str) -> FlinkMessage:
    """Return a rule in the demo's plain format; ValueError names an invalid field."""
    parts = [re.sub(r"[()]", "", part).strip() for part in line.split(",")]
    if len(parts) != 9:
        message = f"a plain rule of the Flink demo has 9 parts between commas, not {len(parts)}"
        raise ValueError(message)
    rule_id, state, keys, unique, field, function, operator, limit, minutes = parts
    names: dict[str, str] = {sign: name for name, sign in OPERATORS.items()}
    if operator and operator not in names:
        message = f"limitOperatorType: {short_line(repr(operator))} is none of {', '.join(names)}"
        raise ValueError(message)
    given = {
        "ruleId": rule_id,
        "ruleState": state.upper(),
        "groupingKeyNames": keys.split("&") if keys else [],
        "unique": unique.split("&") if unique else [],
        "aggregateFieldName": field or None,
        "aggregatorFunctionType": function.upper() or None,
        "limitOperatorType": names.get(operator),
        "limit": limit or None,
        "windowMinutes": minutes or None,
    }
    return parse_flink_object(given)

"""A message of Apache Flink's fraud detection demo (a rule, or a command), and what it is here.

{"ruleId": 1, "ruleState": "ACTIVE", "groupingKeyNames": ["payeeId"], "unique": [],
"aggregateFieldName": "paymentAmount", "aggregatorFunctionType": "SUM",
"limitOperatorType": "GREATER", "limit": 500, "windowMinutes": 20}
{"ruleState": "CONTROL", "controlType": "CLEAR_STATE_ALL"}
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from buckets.events.schema import EventSchema
from buckets.printable import short_line
from buckets.rules.rule import Rule
from buckets.rules.rule_faults import Fault, check_against_schema, check_new
from buckets.rules.short_form import Limit, Operator
from buckets.validation import field_name, first_fault

COUNT, COUNT_WITH_RESET = "COUNT_FLINK", "COUNT_WITH_RESET_FLINK"
"""Names of no field, which stand for the number of events."""
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
"""What each command is here. A clear is over at once, so there is nothing to stop."""
_NAMES = {
    "rule_id": "ruleId",
    "group_by": "groupingKeyNames",
    "aggregate": "aggregateFieldName",
    "window": "windowMinutes",
    "features": "unique",
    "when": "limit",
    "value": "limit",
}
"""Which of the demo's fields a field of a rule comes from, where it has another name."""
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
    """Return a whole number, also as text, as the demo's web page writes it."""
    if value is None:
        return None
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if _WHOLE.fullmatch(text) is None:
        message = f"{short_line(repr(value))} is no whole number"
        raise ValueError(message)
    return int(text)


def _limit_text(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        message = f"{short_line(repr(value))} is not a decimal number"
        raise ValueError(message)
    return None if value is None else str(value)


Whole = Annotated[int | None, BeforeValidator(_whole)]
_State = Literal["ACTIVE", "PAUSE", "DELETE", "CONTROL"]
_Control = Literal["CLEAR_STATE_ALL", "CLEAR_STATE_ALL_STOP", "DELETE_RULES_ALL", "EXPORT_RULES_CURRENT"]
_Function = Literal["SUM", "AVG", "MIN", "MAX"]
_Operator = Literal["EQUAL", "NOT_EQUAL", "GREATER_EQUAL", "LESS_EQUAL", "GREATER", "LESS"]


class FlinkMessage(BaseModel):
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

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    rule_id: Whole = None
    rule_state: _State
    grouping_key_names: tuple[str, ...] | None = None
    unique: tuple[str, ...] | None = None
    aggregate_field_name: str | None = None
    aggregator_function_type: _Function | None = None
    limit_operator_type: _Operator | None = None
    limit: Annotated[str | None, BeforeValidator(_limit_text)] = None
    window_minutes: Whole = None
    window_millis: Whole = None
    control_type: _Control | None = None

    @model_validator(mode="after")
    def _says_what_is_needed(self) -> "FlinkMessage":
        if self.rule_state == "CONTROL":
            if self.control_type is None:
                message = f"controlType: is missing; a CONTROL message has one of {', '.join(get_args(_Control))}"
                raise ValueError(message)
            return self
        if self.control_type is not None:
            message = f"controlType: goes with ruleState CONTROL, not with {self.rule_state}"
            raise ValueError(message)
        if self.rule_id is None:
            message = "ruleId: is missing"
            raise ValueError(message)
        if self.rule_state != "DELETE":
            self._check_rule()
        return self

    def _check_rule(self) -> None:
        missing = next((name for name in _OF_A_RULE if getattr(self, name) is None), None)
        if missing is not None:
            message = f"{to_camel(missing)}: is missing; a rule that is {self.rule_state} is written whole"
            raise ValueError(message)
        if self.window_minutes is not None and self.window_minutes < 1:
            message = f"windowMinutes: {self.window_minutes} is less than 1; a window is at least a minute long"
            raise ValueError(message)
        if self.window_millis not in (None, (self.window_minutes or 0) * 60_000):
            message = f"windowMillis: {self.window_millis} is not windowMinutes, {self.window_minutes}, in milliseconds"
            raise ValueError(message)
        if self.is_count and self.aggregator_function_type != "SUM":
            function = self.aggregator_function_type
            message = f"aggregatorFunctionType: {self.aggregate_field_name} counts with SUM; {function} of ones is 1"
            raise ValueError(message)
        if self.unique and (self.aggregate_field_name != COUNT or len(self.unique) > 1):
            message = (
                f"unique: the different values of one field are counted with {COUNT}; leave it empty for what the demo "
                "does with it, which is nothing"
            )
            raise ValueError(message)

    @property
    def is_count(self) -> bool:
        """Whether it counts events."""
        return self.aggregate_field_name in (COUNT, COUNT_WITH_RESET)

    @property
    def name(self) -> str:
        """What its rule is called here."""
        return str(self.rule_id)

    def rule(self) -> Rule:
        """Return the rule, ACTIVE or PAUSE.

        Raises:
            ValueError: it is not valid; names the demo's field.
        """
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
    """Return a fault of a rule, at the demo's field that it comes from."""
    location, reason = fault
    return f"{_NAMES.get(location[0], location[0])}: {reason}" if location else reason


def schema_fault(rule: Rule, schema: EventSchema) -> str | None:
    """Return what of a message's rule does not fit the event schema, if anything; names the demo's field."""
    fault = check_against_schema(rule, schema)
    return None if fault is None else _in_its_words(fault)


_FIELDS = frozenset(to_camel(name) for name in FlinkMessage.model_fields) - {"limit"}
"""Fields that only the demo's messages have."""


def is_flink_object(data: Mapping[str, Any]) -> bool:
    """Return whether an object is one of the demo's messages, and none of `buckets.rules.change`.

    Raises:
        ValueError: it has fields of both.
    """
    theirs = next((name for name in data if name in _FIELDS), None)
    ours = next((name for name in data if name in ("rule_id", "change")), None)
    if theirs is not None and ours is not None:
        message = (
            f"holds {theirs!r}, a field of the Flink demo, and {ours!r}, one of buckets; write one of the two forms"
        )
        raise ValueError(message)
    return theirs is not None


def parse_flink_object(data: Mapping[str, Any]) -> FlinkMessage:
    """Return an object as a message of the demo.

    Raises:
        ValueError: it is not a valid one; names the field.
    """
    try:
        return FlinkMessage.model_validate(data)
    except ValidationError as error:
        raise ValueError(first_fault(error, model=FlinkMessage)[1]) from None

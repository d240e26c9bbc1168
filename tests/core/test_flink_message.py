"""Messages of Flink's fraud detection demo: which change each is, which rule it holds, and what is refused and why."""

import contextlib
import json
from decimal import Decimal
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.rules.change import RuleChange, parse_change
from buckets.rules.feature import Operator
from buckets.rules.flink_message import OPERATORS, parse_flink_object, parse_plain_line, schema_fault
from buckets.rules.rule import Rule
from tests.core.flink_demo import SCHEMA

WRITTEN = {
    "ruleId": 1,
    "ruleState": "ACTIVE",
    "groupingKeyNames": ["payeeId", "beneficiaryId"],
    "unique": [],
    "aggregateFieldName": "paymentAmount",
    "aggregatorFunctionType": "SUM",
    "limitOperatorType": "GREATER",
    "limit": 500,
    "windowMinutes": 20,
}
RULE = Rule.model_validate(
    {
        "rule_id": "1",
        "group_by": ["payeeId", "beneficiaryId"],
        "aggregate": {"function": "sum", "measure": "paymentAmount"},
        "window": {"length": "20m"},
        "limit": {"operator": ">", "value": "500"},
    }
)
COUNTED = WRITTEN | {"aggregateFieldName": "COUNT_FLINK"}
PUT = RuleChange(change="put", rule=RULE, time=7, origin="t@3")


def parsed(value: Any, key: str | None = None) -> RuleChange | None:
    return parse_change(key, value if isinstance(value, str) else json.dumps(value), "t@3", 7)


def rule_of(**changes: Any) -> Rule:
    return parse_flink_object(WRITTEN | changes).rule()


def test_a_rule_is_put_under_its_number():
    assert parsed(WRITTEN) == parsed(WRITTEN, key="1") == PUT


def test_what_is_left_out_or_null_is_the_same():
    without = {name: value for name, value in WRITTEN.items() if name != "unique"}
    assert parsed(without) == parsed(WRITTEN | {"unique": None, "controlType": None}) == PUT


def test_numbers_may_be_texts_as_the_web_page_writes_them():
    assert parsed(WRITTEN | {"ruleId": "1", "limit": "500", "windowMinutes": "20"}) == PUT


def test_a_rule_that_the_demo_has_exported_is_read():
    assert parsed(WRITTEN | {"windowMillis": 1_200_000, "controlType": None}) == PUT


def test_a_plain_line_is_the_same_rule():
    assert parsed("1,(active),(payeeId&beneficiaryId),,(paymentAmount),(SUM),(>),(500),(20)") == PUT
    assert parsed("1,(ACTIVE),(payeeId&beneficiaryId),(),(paymentAmount),(sum),(>),(500),(20)\n") == PUT


FIELDS = st.lists(st.sampled_from(["payeeId", "beneficiaryId", "paymentType"]), unique=True)


@given(
    number=st.integers(-(2**31), 2**31 - 1),
    state=st.sampled_from(["ACTIVE", "PAUSE"]),
    fields=FIELDS,
    field=st.sampled_from(["paymentAmount", "COUNT_FLINK", "COUNT_WITH_RESET_FLINK"]),
    function=st.sampled_from(["SUM", "AVG", "MIN", "MAX"]),
    operator=st.sampled_from(sorted(OPERATORS)),
    limit=st.decimals(min_value=-(10**9), max_value=10**9, places=2),
    minutes=st.integers(1, 5_000_000),
)
def test_json_and_a_plain_line_are_one_rule(number, state, fields, field, function, operator, limit, minutes):
    function = "SUM" if field.startswith("COUNT") else function
    line = f"{number},({state.lower()}),({'&'.join(fields)}),,({field}),({function.lower()}),"
    line += f"({OPERATORS[operator]}),({limit}),({minutes})"
    values = [number, state, fields, [], field, function, operator, str(limit), minutes]
    change = parsed(dict(zip(WRITTEN, values, strict=True)))
    assert parsed(line) == change
    rule = change.rule
    assert (rule.rule_id, rule.state, list(rule.group_by), rule.limit.value) == (str(number), state, fields, limit)
    assert (rule.window.length_ms, rule.window.left) == (minutes * 60_000, "closed")
    assert schema_fault(rule, SCHEMA) is None


def test_a_limit_has_the_digits_that_were_written():
    text = json.dumps(WRITTEN).replace("500", "0.10000000000000000000000000000000001")
    assert parsed(text).rule.limit.value == Decimal("0.10000000000000000000000000000000001")
    assert rule_of(limit="0.10").limit.model_dump(mode="json")["value"] == "0.10"


@given(st.decimals(min_value=-(10**20), max_value=10**20, places=6))
def test_no_limit_goes_through_a_float(value):
    text = json.dumps(WRITTEN).replace("500", f"{value:f}")
    assert parsed(text).rule.limit.value == value


@pytest.mark.parametrize(("name", "operator"), OPERATORS.items())
def test_each_operator_is_ours_of_that_name(name, operator):
    assert rule_of(limitOperatorType=name).limit.operator == operator


def test_all_operators_have_a_name():
    assert set(OPERATORS.values()) == set(get_args(Operator))


@pytest.mark.parametrize("function", ["SUM", "AVG", "MIN", "MAX"])
def test_each_function_is_ours_of_that_name(function):
    assert rule_of(aggregatorFunctionType=function).aggregate.function == function.lower()


def test_a_count_counts_events():
    rule = parse_flink_object(COUNTED).rule()
    assert (rule.aggregate.function, rule.measure, rule.reset_on_alert) == ("count", None, False)
    assert rule.window == RULE.window


def test_a_count_with_reset_starts_again_after_an_alert():
    rule = rule_of(aggregateFieldName="COUNT_WITH_RESET_FLINK")
    assert (rule.aggregate.function, rule.reset_on_alert) == ("count", True)


def test_a_count_of_unique_values_counts_different_ones():
    rule = parse_flink_object(COUNTED | {"unique": ["paymentType"], "limit": "1e1"}).rule()
    assert (
        rule.sentence() == "For events of the same payeeId and beneficiaryId: different_values is above 10; "
        "different_values is the number of different values of paymentType over the last 20m"
    )
    assert schema_fault(rule, SCHEMA) is None


def test_no_grouping_means_all_events_together():
    assert rule_of(groupingKeyNames=[]).group_by == ()


def test_a_paused_rule_is_put_paused():
    assert parsed(WRITTEN | {"ruleState": "PAUSE"}).rule == RULE.model_copy(update={"state": "PAUSE"})


WEB_PAGE = dict.fromkeys(WRITTEN) | {"controlType": None}
"""What the demo's web page leaves empty it writes as null."""


@pytest.mark.parametrize(
    "value",
    [
        {"ruleId": 7, "ruleState": "DELETE"},
        WEB_PAGE | {"ruleId": 7, "ruleState": "DELETE"},
        WRITTEN | {"ruleId": "7", "ruleState": "DELETE"},
        "7,(delete),(payeeId),,(paymentAmount),(SUM),(>),(10),(20)",
    ],
)
def test_a_rule_is_deleted_by_its_number(value):
    assert parsed(value) == parsed(value, key="7") == RuleChange(change="delete", rule_id="7", time=7, origin="t@3")


@pytest.mark.parametrize("others", [{}, WEB_PAGE, {"ruleId": 0}])
@pytest.mark.parametrize(
    ("command", "kind"),
    [("CLEAR_STATE_ALL", "clear_all_state"), ("DELETE_RULES_ALL", "delete_all"), ("EXPORT_RULES_CURRENT", "export")],
)
def test_a_command_is_a_change(command, kind, others):
    asked = others | {"ruleState": "CONTROL", "controlType": command}
    assert parsed(asked) == parsed(asked, key="any") == RuleChange(change=kind, time=7, origin="t@3")


def test_nothing_is_left_to_stop_of_a_clear():
    assert parsed({"ruleState": "CONTROL", "controlType": "CLEAR_STATE_ALL_STOP"}) is None


@pytest.mark.parametrize(
    "value",
    [
        WRITTEN | {"windw": 1},
        WRITTEN | {"rule_id": "1"},
        WRITTEN | {"change": "put"},
        {"ruleId": 1},
        {"ruleId": 1, "ruleState": "SHADOW"},
        {"ruleId": 1, "ruleState": 0},
        {"ruleState": "DELETE"},
        WRITTEN | {"ruleId": 1.5},
        WRITTEN | {"ruleId": True},
        WRITTEN | {"ruleId": "one"},
        {"ruleId": 1, "ruleState": "PAUSE"},
        WRITTEN | {"limit": None},
        WRITTEN | {"limit": "much"},
        WRITTEN | {"limit": True},
        WRITTEN | {"limit": [1]},
        WRITTEN | {"limit": "1" * 39},
        WRITTEN | {"windowMinutes": 0},
        WRITTEN | {"windowMinutes": "-5"},
        WRITTEN | {"windowMinutes": 10_000_000},
        WRITTEN | {"windowMillis": 5},
        WRITTEN | {"groupingKeyNames": "payeeId"},
        WRITTEN | {"groupingKeyNames": ["a", "a"]},
        WRITTEN | {"groupingKeyNames": ["a\x1b"]},
        WRITTEN | {"limitOperatorType": ">"},
        WRITTEN | {"aggregatorFunctionType": "sum"},
        COUNTED | {"aggregatorFunctionType": "AVG"},
        WRITTEN | {"unique": ["payeeId"]},
        COUNTED | {"unique": ["a", "b"]},
        COUNTED | {"unique": ["a"], "limit": "x"},
        WRITTEN | {"controlType": "CLEAR_STATE_ALL"},
        {"ruleState": "CONTROL"},
        {"ruleState": "CONTROL", "controlType": "STOP"},
        "1,(active),(payeeId),,(paymentAmount),(SUM),(>),(500)",
        "1,(active),(payeeId),,(paymentAmount),(SUM),(=>),(5),(20)",
        "1,(active),(payeeId),,(paymentAmount),(SUM),(>),(),(20)",
        "1,(off),(payeeId),,(paymentAmount),(SUM),(>),(5),(20)",
    ],
)  # fmt: skip
def test_what_is_no_message_of_the_demo_is_refused_at_its_own_field(value, as_worded):
    with pytest.raises(ValueError, check=as_worded) as error:
        parsed(value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_under_the_key_of_another_rule_it_is_refused(as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parsed(WRITTEN, key="2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"groupingKeyNames": ["taxiId"]}, "groupingKeyNames: 'taxiId' is not an attribute of event schema"),
        ({"aggregateFieldName": "totalFare"}, "aggregateFieldName: 'totalFare' is not a measure of event schema"),
        (
            {"aggregateFieldName": "COUNT_FLINK", "unique": ["taxiId"]},
            "unique: 'taxiId' is not a field of event schema",
        ),
    ],
)
def test_fields_that_events_do_not_have_are_named_as_the_demo_does(changes, said):
    assert schema_fault(rule_of(**changes), SCHEMA).startswith(said)


@given(st.text('1(),activeSUM>&"{}: \n', max_size=60))
def test_whatever_looks_like_a_plain_line_is_one_or_refused(text):
    with contextlib.suppress(ValueError):
        assert parse_plain_line(f"1,(active),{text}").name == "1"

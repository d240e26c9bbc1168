"""Rule files: the good ones are read, and each fault is named by file, line, field and reason."""

from decimal import Decimal
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.rule_file import load_rules
from tests.core.examples import SCHEMA

GOOD = """\
rules:
  - rule_id: first
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}
  - rule_id: second
    version: 2
    state: SHADOW
    description: Many small ones
    group_by: [payer, kind]
    where:
      kind: [a, b]
      amount: {"<": 10}
    aggregate: {function: count}
    window: {length: 90s, left: open}
    limit: {operator: ">=", value: 5}
"""


def load(folder: Path, text: str | bytes, schema=None):
    path = folder / "rules.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_rules(path, schema)


def fault(folder: Path, text: str | bytes, schema=None) -> str:
    """What is said of a file, without the name of the file."""
    with pytest.raises(BucketsError) as error:
        load(folder, text, schema)
    message = error.value.message
    assert "\n" not in message
    begin = f"rule file {folder / 'rules.yaml'}:"
    assert message.startswith(begin)
    return message.removeprefix(begin).strip()


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_file_is_read_in_its_order(tmp_path):
    first, second = load(tmp_path, GOOD, SCHEMA)
    assert (first.rule_id, first.version, first.state, first.where) == ("first", 1, "ACTIVE", ())
    assert (first.window.length_ms, first.window.left, first.limit.operator) == (86_400_000, "closed", ">")
    assert first.limit.value == Decimal(200_000)
    assert (second.rule_id, second.version, second.state, second.measure) == ("second", 2, "SHADOW", None)
    assert second.group_by == ("payer", "kind")
    assert [condition.operands for condition in second.where] == [("10",), ("a", "b")]
    assert (second.window.length_ms, second.window.left) == (90_000, "open")


@pytest.mark.parametrize(("written", "read"), [("=", "="), ('"="', "="), ('"!="', "!="), ('">="', ">=")])
def test_an_operator_may_be_written_so(tmp_path, written, read):
    rules = load(tmp_path, changed('{operator: ">",', f"{{operator: {written},"))
    assert rules[0].limit.operator == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"0.1"', "0.1"),
        ("0.1", "0.1"),
        ("-5", "-5"),
        ('"1e3"', "1000"),
        ("1e3", "1000"),
        ('"9223372036854775808"', str(2**63)),
    ],
)
def test_a_limit_is_the_decimal_that_is_written(tmp_path, written, read):
    assert load(tmp_path, changed('"200000"', written))[0].limit.value == Decimal(read)


@pytest.mark.parametrize("written", ["17", "0200", "1e3", "2024-02-30", "1:30"])
def test_a_rule_id_may_look_like_a_number_or_a_date(tmp_path, written):
    assert load(tmp_path, changed("first", written))[0].rule_id == written


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "    window: {length: 24h}",
            "    windows: 5\n    window: {length: 24h}",
            "5: rules[1].windows: unknown field",
        ),
        ("{length: 24h}", "{length: 24h, hop: 5m}", "5: rules[1].window.hop: unknown field"),
        ("    window: {length: 24h}\n", "", "2: rules[1].window: is missing"),
        ("  - rule_id: second\n    version: 2", "  - version: 2", "7: rules[2].rule_id: is missing"),
        ("{function: sum, measure: amount}", "{function: sum}", "4: rules[1].aggregate: sum needs a measure"),
        ('"200000"', "lots", "6: rules[1].limit.value: 'lots' is not a decimal number"),
        ('"200000"', ".inf", "6: rules[1].limit.value: '.inf' is not a decimal number"),
        ('"200000"', "yes", "6: rules[1].limit.value: True is not a decimal number"),
        ('"200000"', "[1]", "6: rules[1].limit.value: ['1'] is not a decimal number"),
        ('"200000"', '"1_000"', "6: rules[1].limit.value: '1_000' is not a decimal number"),
        ('"200000"', f'"{"9" * 39}"', f"6: rules[1].limit.value: {'9' * 39} has more than 38 digits"),
        ("{length: 24h}", "{length: 0s}", "5: rules[1].window.length: a window is at least 1ms long"),
        ("{length: 24h}", "{length: 24}", "5: rules[1].window.length: '24' is not a duration; write digits and a unit"),
        ("{length: 24h}", "{length: -24h}", "5: rules[1].window.length: '-24h' is not a duration"),
        ("{length: 24h}", "{length: 9999d}", "5: rules[1].window.length: '9999d' is longer than the limit of 3660d"),
        ("left: open", "left: ajar", "16: rules[2].window.left: Input should be 'closed' or 'open', not 'ajar'"),
        ("function: sum", "function: median", "4: rules[1].aggregate.function: Input should be 'sum'"),
        (
            "state: SHADOW",
            "state: LOUD",
            "9: rules[2].state: Input should be 'ACTIVE', 'SHADOW', 'PAUSE' or 'DELETE', not",
        ),
        ("version: 2", "version: 0", "8: rules[2].version: Input should be greater than or equal to 1, not '0'"),
        ("rule_id: second", "rule_id: first", "7: rule_id 'first' is already used on line 2"),
        ("rule_id: first", 'rule_id: ""', "2: rules[1].rule_id: String should have at least 1 character"),
        ("rule_id: first", "rule_id: true", "2: rules[1].rule_id: Input should be a valid string, not True"),
        ("group_by: [payer]", "group_by: [payer, payer]", "3: rules[1].group_by: a field is named twice in"),
        ("group_by: [payer]", "group_by: payer", "3: rules[1].group_by: "),
        ("kind: [a, b]", "kind: {like: a}", "12: rules[2].where: where.kind: unknown operator 'like'"),
        ("kind: [a, b]", "kind: []", "12: rules[2].where: where.kind: in takes a list of values"),
        ("kind: [a, b]", "kind: {}", "12: rules[2].where: where.kind: has no test"),
        ('{"<": 10}', '{"<": ten}', "12: rules[2].where: where.amount: 'ten' is not a decimal number"),
        ("kind: [a, b]", "kind:", "12: rules[2].where: where.kind: None is no value"),
        (
            'operator: ">"',
            "operator: >",
            "6: broken YAML: found character '>' that cannot start any token (quote operators",
        ),
        ('operator: ">"', "operator: !=", "6: broken YAML: "),
        (
            'operator: ">"',
            "operator: ==",
            "6: rules[1].limit.operator: Input should be '>', '>=', '<', '<=', '=' or '!='",
        ),
        ("rule_id: first", "rule_id: first\n    rule_id: other", "3: broken YAML: key 'rule_id' is given twice"),
        ("rule_id: first", "rule_id: [first", "3: broken YAML: "),
        ("rule_id: first", "rule_id: !secret first", "2: broken YAML: could not determine a constructor"),
        ("rules:", "version: 1\nrules:", "1: version: unknown field; only `rules` may stand here"),
    ],
)
def test_a_fault_is_named_by_line_field_and_reason(tmp_path, old, new, reason):
    assert fault(tmp_path, changed(old, new)).startswith(reason)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "[payer]",
            "[who]",
            "3: rules[1].group_by: 'who' is no attribute of event schema 'payment'; declared attributes: payer",
        ),
        ("[payer]", "[amount]", "3: rules[1].group_by: 'amount' is no attribute of event schema 'payment'"),
        (
            "measure: amount",
            "measure: total",
            "4: rules[1].aggregate.measure: 'total' is no measure of event schema 'payment'",
        ),
        ("measure: amount", "measure: payer", "4: rules[1].aggregate.measure: 'payer' is no measure"),
        ("function: count", "function: count, measure: total", "15: rules[2].aggregate.measure: 'total' is no measure"),
        ("kind: [a, b]", "colour: [a, b]", "12: rules[2].where: where.colour: no such attribute or measure"),
        ('{"<": 10}', '{"<": 0.001}', "12: rules[2].where: where.amount: 0.001 has more than 2 digits after the point"),
        ("kind: [a, b]", 'kind: {">": 5}', "12: rules[2].where: where.kind: > needs a number, and kind is a string"),
    ],
)
def test_what_does_not_fit_the_event_schema_is_named(tmp_path, old, new, reason):
    assert fault(tmp_path, changed(old, new), SCHEMA).startswith(reason)
    assert load(tmp_path, changed(old, new))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("# nothing yet\n", "must be a mapping with a list `rules`"),
        ("- rule_id: a\n", "must be a mapping with a list `rules`"),
        ("rules: {first: a}\n", "must be a mapping with a list `rules`"),
        ("rule: []\n", "must be a mapping with a list `rules`"),
        ("rules: []\n", "holds no rule; add at least one under `rules`"),
        ("rules: [a]\n", "1: rules[1]: "),
        ("rules:\n\t- a\n", "2: broken YAML: found character '\\t' that cannot start any token"),
        ("rules: []\n---\nrules: []\n", "2: broken YAML: but found another document"),
        (b"rules: \xff\xfe", "cannot be read ('utf-8' codec can't decode byte 0xff"),
        ("rules: \x01", "broken YAML: unacceptable character"),
    ],
)
def test_a_file_that_is_no_rule_file_is_named(tmp_path, text, reason):
    assert fault(tmp_path, text).startswith(reason)


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(BucketsError, match="is a directory; name a file"):
        load_rules(tmp_path)
    with pytest.raises(BucketsError, match=r"none\.yaml: no such file; check the path"):
        load_rules(tmp_path / "none.yaml")


def test_of_several_faults_the_first_is_named_and_the_others_are_counted(tmp_path):
    assert fault(tmp_path, changed("{length: 24h}", "{length: 5, left: ajar}")).endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"200000"', "{{ limit }}"),
        ('"200000"', "9" * 5000),
    ],
)
def test_broken_values_of_yaml_are_one_clear_line_too(tmp_path, old, new):
    assert fault(tmp_path, changed(old, new))


def test_a_name_that_is_too_long_is_one_clear_line_too():
    with pytest.raises(BucketsError, match="rule file"):
        load_rules(Path("a" * 5000))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("0200", "200"),
        ("0.12345678901234567891", "0.12345678901234567891"),
    ],
)
def test_a_plain_number_is_the_decimal_that_is_written(tmp_path, written, read):
    assert load(tmp_path, changed('"200000"', written))[0].limit.value == Decimal(read)


@pytest.mark.parametrize("limit", ["12345678901234567890", "9" * 38, "1234567890123456789.00"])
def test_a_limit_of_up_to_38_digits_is_taken(tmp_path, limit):
    assert load(tmp_path, changed('"200000"', f'"{limit}"'))[0].limit.value == Decimal(limit)

"""Filters: the rows that pass, and one form for one filter."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.expression import quoted_text
from buckets.rules.filter import (
    canonical_filter,
    describe_filter,
    filter_fields,
    matches,
    parse_filter,
    write_filter,
)
from buckets.rules.group import canonical_group_id, group_id
from tests.core.examples import SCHEMA
from tests.laws import examples

COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "in": lambda a, b: a in b,
    "not_in": lambda a, b: a not in b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}
AMOUNTS = st.integers(-300, 300).map(lambda cents: Decimal(cents).scaleb(-2))
VALUES: dict[str, st.SearchStrategy] = {
    "kind": st.sampled_from(["", "a", "b", "é", "a\x00", "true", "5"]),
    "account": st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)])),
    "vip": st.booleans(),
    "amount": AMOUNTS,
}


def conditions(field: str):
    value = VALUES[field]
    ordered = field in ("account", "amount")
    single = st.tuples(st.sampled_from(["=", "!=", *([">", ">=", "<", "<="] if ordered else [])]), value)
    listed = st.tuples(st.sampled_from(["in", "not_in"]), st.lists(value, min_size=2, max_size=3, unique=True))
    return st.lists(st.one_of(single, listed), min_size=1, max_size=2).map(dict)


FILTERS = st.fixed_dictionaries({}, optional={field: conditions(field) for field in VALUES})
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=12)


def text_of(value: Any) -> Any:
    """A value as it may stand in a rule file."""
    if isinstance(value, list):
        return [text_of(each) for each in value]
    return str(value) if isinstance(value, Decimal) else value


def written(tests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {field: {op: text_of(value) for op, value in test.items()} for field, test in tests.items()}


@settings(max_examples=examples(300))
@given(FILTERS, ROWS)
def test_a_row_passes_when_all_its_conditions_hold(tests, rows):
    columns = {
        "kind": pa.array([row["kind"] for row in rows], pa.string()),
        "account": pa.array([row["account"] for row in rows], pa.int64()),
        "vip": pa.array([row["vip"] for row in rows], pa.bool_()),
        "amount": pa.array([int(row["amount"].scaleb(2)) for row in rows], pa.int64()),
    }
    mask = matches(parse_filter(written(tests)), columns, SCHEMA)
    expected = [
        all(COMPARE[op](row[field], value) for field, test in tests.items() for op, value in test.items())
        for row in rows
    ]
    assert (mask.to_pylist() if mask is not None else [True] * len(rows)) == expected
    assert (mask is None) == (not tests)


@given(FILTERS, st.randoms(use_true_random=False))
def test_the_order_in_which_conditions_are_written_does_not_matter(tests, random):
    shuffled = {}
    for field in random.sample(list(tests), len(tests)):
        test = tests[field]
        shuffled[field] = {
            op: random.sample(test[op], len(test[op])) if isinstance(test[op], list) else test[op]
            for op in random.sample(list(test), len(test))
        }
    where, other = parse_filter(written(tests)), parse_filter(written(shuffled))
    assert where == other
    assert group_id(["payer"], where) == group_id(["payer"], other)


@given(FILTERS)
def test_reading_what_was_written_gives_the_filter_back(tests):
    where = parse_filter(written(tests))
    assert parse_filter(write_filter(where)) == where


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"kind": "a"}, {"kind": {"=": "a"}}),
        ({"kind": ["b", "a"]}, {"kind": {"in": ["a", "b", "a"]}}),
        ({"vip": True}, {"vip": "true"}),
        ({"account": 5}, {"account": "5"}),
        ({"amount": {">": 100}}, {"amount": {">": "100"}}),
        ({"kind": "a"}, {"kind": ["a"]}),
        ({"kind": {"!=": "a"}}, {"kind": {"not_in": ["a"]}}),
        ({"amount": {">": "100"}}, {"amount": {">": "100.00"}}),
        ({"amount": {">": 100}}, {"amount": {">": 100.0}}),
        ({"amount": {">": "1e2"}}, {"amount": {">": "+100"}}),
    ],
)
def test_two_ways_to_write_one_filter_are_one_group(one, other):
    assert group_id(["payer"], parse_filter(one)) == group_id(["payer"], parse_filter(other))


def respelt(value: Any, random) -> Any:
    """A value as somebody else may write it, for a field that is no string."""
    if isinstance(value, list):
        return [respelt(each, random) for each in value]
    if isinstance(value, bool):
        return random.choice([value, str(value).lower()])
    if isinstance(value, int):
        return random.choice([value, str(value), f"{'-' if value < 0 else '+'}{abs(value)}", f"{value:05}"])
    plus = "" if value < 0 else random.choice(["", "+"])
    return plus + random.choice([f"{value:.2f}", f"{value:07.2f}", f"{value * 100:.0f}e-2", f"{value.normalize():f}"])


@given(FILTERS, ROWS, st.randoms(use_true_random=False))
def test_one_filter_is_one_group_however_its_numbers_are_written(tests, rows, random):
    other = {
        field: test if field == "kind" else {op: respelt(value, random) for op, value in test.items()}
        for field, test in tests.items()
    }
    one, another = parse_filter(written(tests)), parse_filter(other)
    canonical = canonical_filter(one, SCHEMA)
    assert canonical_filter(another, SCHEMA) == canonical == canonical_filter(canonical, SCHEMA)
    assert canonical_group_id(["payer"], another, SCHEMA) == group_id(["payer"], canonical)
    assert parse_filter(write_filter(canonical)) == canonical
    columns = {"kind": [row["kind"] for row in rows], "vip": [row["vip"] for row in rows]}
    columns |= {"account": [row["account"] for row in rows], "amount": [int(row["amount"] * 100) for row in rows]}
    types = {"kind": pa.string(), "vip": pa.bool_(), "account": pa.int64(), "amount": pa.int64()}
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    masks = [matches(each, arrays, SCHEMA) for each in (one, another, canonical)]
    assert masks[0] == masks[1] == masks[2]


@given(FILTERS, FILTERS)
def test_different_filters_stay_different_and_read_differently(one, other):
    first, second = (canonical_filter(parse_filter(written(tests)), SCHEMA) for tests in (one, other))
    assert (first == second) == (describe_filter(first) == describe_filter(second))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"kind": "a, b"}, {"kind": "a,  b"}),
        ({"kind": ["a, b"]}, {"kind": ["a", "b"]}),
        ({"kind": "a and vip is true"}, {"kind": "a", "vip": True}),
        ({"kind is a and x": "b"}, {"kind": "a", "x": "b"}),
        ({"kind": '"a"'}, {"kind": "a"}),
        ({"kind": "a\nb"}, {"kind": "a\\nb"}),
    ],
)
def test_filters_that_differ_never_read_alike(one, other):
    said = [describe_filter(parse_filter(each)) for each in (one, other)]
    assert said[0] != said[1]
    assert all(text.isprintable() for text in said)


def test_tests_that_come_to_the_same_only_by_their_type_are_refused(as_worded):
    where = parse_filter({"account": {"=": "5", "in": ["06", "6"]}})
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(where, SCHEMA)


@pytest.mark.parametrize("test", [{"=": "a", "in": ["b"]}, {"!=": "a", "not_in": ["b"]}])
def test_two_tests_that_come_to_one_operator_are_refused(test, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_filter({"kind": test})


def test_a_bound_keeps_all_its_digits():
    bound = "1." + "0" * 30 + "1"
    (condition,) = parse_filter({"amount": {">": bound}})
    assert condition.operands == (bound,)


@given(FILTERS, FILTERS)
def test_different_filters_are_different_groups(one, other):
    first, second = parse_filter(written(one)), parse_filter(written(other))
    assert (group_id(["payer"], first) == group_id(["payer"], second)) == (first == second)


@pytest.mark.parametrize(
    "where",
    [
        None,
        5,
        "kind = ",
        "vip AND\n nothing(kind) = 1",
        ["kind"],
        {"kind": {"like": "a"}},
        {"kind": {"in": "a"}},
        {"kind": {"=": ["a"]}},
        {"kind": []},
        {"kind": None},
        {"kind": {}},
        {"amount": {">": "x"}},
        {"kind": [["a"]]},
    ],
)
def test_what_is_no_filter_is_refused(where, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_filter(where)


@pytest.mark.parametrize(
    "where",
    [
        {"who": "a"},
        {"account": "a"},
        {"account": "5.0"},
        {"account": str(2**63)},
        {"vip": "yes"},
        {"kind": {">": "5"}},
        {"vip": {"<": 1}},
        {"amount": {">": "1.005"}},
        {"amount": "x"},
    ],
)
def test_an_operand_that_does_not_fit_its_field_is_refused(where, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(parse_filter(where), SCHEMA)


@pytest.mark.parametrize("operand", ["+-5", "\N{ARABIC-INDIC DIGIT FIVE}"])
def test_an_operand_that_is_no_plain_integer_is_refused(operand, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(parse_filter({"account": operand}), SCHEMA)


# --- SQL ----------------------------------------------------------------------------------------------------


def sql_test(field: str, operator: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{field} {operator.replace('_', ' ')} ({', '.join(map(sql_value, value))})"
    return f"{field} {operator} {sql_value(value)}"


def sql_value(value: Any) -> str:
    return quoted_text(value) if isinstance(value, str) else str(value)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    cents = [None if row["amount"] is None else int(row["amount"] * 100) for row in rows]
    types = {"kind": pa.string(), "account": pa.int64(), "vip": pa.bool_()}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    return columns | {"amount": pa.array(cents, pa.int64()), "at": pa.array([0] * len(rows), pa.int64())}


ROWS_WITH_NULLS = st.lists(
    st.fixed_dictionaries({field: st.none() | value for field, value in VALUES.items()}), max_size=12
)


SQL_FILTERS = FILTERS.filter(
    lambda tests: (
        tests and all(len(test) == 1 for test in tests.values()) and not {"in", "not_in"} & {*tests.get("vip", ())}
    )
)
"""Without tests that SQL brings to a shorter form: two of one field, and lists of true and false."""


@given(SQL_FILTERS, ROWS_WITH_NULLS)
def test_sql_that_a_mapping_can_say_is_that_mapping_and_a_null_passes_neither(tests, rows):
    text = " AND ".join(sql_test(field, op, value) for field, test in tests.items() for op, value in test.items())
    mapping, sql = parse_filter(written(tests)), parse_filter(text)
    assert canonical_group_id(["payer"], sql, SCHEMA) == canonical_group_id(["payer"], mapping, SCHEMA)
    assert canonical_filter(sql, SCHEMA) == canonical_filter(mapping, SCHEMA)
    columns = columns_of(rows)
    masks = [matches(each, columns, SCHEMA) for each in (mapping, sql, canonical_filter(sql, SCHEMA))]
    expected = [
        all(
            row[field] is not None and COMPARE[op](row[field], value)
            for field, test in tests.items()
            for op, value in test.items()
        )
        for row in rows
    ]
    assert [mask.to_pylist() for mask in masks] == [expected] * 3


def test_sql_says_what_a_mapping_cannot():
    where = parse_filter("kind IS NULL OR amount > account + 0.5 OR hour(at AT TIME ZONE 'Europe/Berlin') = 2")
    assert canonical_filter(where, SCHEMA) == where
    rows = [
        {"kind": None, "account": None, "vip": None, "amount": None},
        {"kind": "a", "account": 1, "vip": None, "amount": Decimal("1.51")},
        {"kind": "a", "account": 1, "vip": None, "amount": Decimal("1.50")},
        {"kind": "a", "account": None, "vip": None, "amount": Decimal("1.51")},
    ]
    columns = columns_of(rows) | {"at": pa.array([0, 0, 0, 3_600_000])}
    assert matches(where, columns, SCHEMA).to_pylist() == [True, True, False, True]
    assert sorted(filter_fields(where)) == ["account", "amount", "at", "kind"]


def test_two_spellings_of_one_condition_are_one_group_and_keep_the_text_of_each():
    one = parse_filter("kind = 'a' OR amount BETWEEN 1 AND 2")
    other = parse_filter("(amount <= 2.00 and 1 <= amount) or 'a' = kind")
    assert one == other
    assert group_id(["payer"], one) == group_id(["payer"], other)
    assert describe_filter(one) == describe_filter(other) == "amount <= 2 AND amount >= 1 OR kind = 'a'"
    assert write_filter(other) == "(amount <= 2.00 and 1 <= amount) or 'a' = kind"
    assert parse_filter(write_filter(other)) == one


@pytest.mark.parametrize(
    "where",
    [
        "who = 'a'",
        "\"kind\" = 'x'",
        "vip OR \"account\" IN ('x')",
        "kind",
        "vip AND\n  kind = 5",
    ],
)
def test_sql_that_does_not_fit_the_schema_is_refused_with_its_column(where, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(parse_filter(where), SCHEMA)


def test_sql_that_cannot_be_evaluated_is_refused_before_it_stops_a_batch(monkeypatch, as_worded):
    def fails(*_):
        message = "cannot locate\nor parse"
        raise pa.ArrowInvalid(message)

    monkeypatch.setattr("buckets.rules.condition.matching", fails)
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(parse_filter("vip OR kind = 'never tried'"), SCHEMA)


def test_an_amount_with_more_digits_than_there_are_is_compared_and_equals_nothing():
    where = canonical_filter(parse_filter("amount = 1.005 OR amount > 1.005"), SCHEMA)
    columns = columns_of([{"kind": None, "account": 0, "vip": None, "amount": Decimal(n)} for n in ("1.00", "1.01")])
    assert matches(where, columns, SCHEMA).to_pylist() == [False, True]


def test_a_filter_reads_as_english():
    where = parse_filter({"kind": ["b", "a"], "vip": True, "amount": {">": "1", "<=": "5"}})
    assert describe_filter(where) == "amount <= 5 and amount > 1 and kind is one of a, b and vip is true"

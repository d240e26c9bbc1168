"""The rules of Flink's fraud detection demo as they are, on its texts' cases and on a stream like its generator's."""

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.flink_message import parse_flink_object, parse_plain_line
from tests.core.flink_demo import (
    PEOPLE,
    RULES_FILE,
    SCHEMA,
    START_MS,
    Alert,
    Transaction,
    disordered,
    in_cuts,
    looped,
    transactions,
)

WRITTEN = json.loads(RULES_FILE.read_text(encoding="utf-8"))
WITHOUT_RESET = [each for each in WRITTEN if each["aggregateFieldName"] != "COUNT_WITH_RESET_FLINK"]
HOUR_MS = 3_600_000


def rules_of(written: list[dict[str, Any]]) -> list[Any]:
    return [parse_flink_object(each).rule() for each in written]


def payment(number: int, time_ms: int, amount: str, payer: int = 1, beneficiary: int = 2, kind: str = "CSH") -> Any:
    return Transaction(number, START_MS + time_ms, payer, beneficiary, amount, kind)


# What the texts describe


def test_payments_from_one_payer_to_one_beneficiary_of_more_than_200000_in_24_hours():
    """The rule of the articles: the sum of payments to the same beneficiary in 24 h is greater than 200,000."""
    rule = parse_plain_line("7,(active),(payeeId&beneficiaryId),,(paymentAmount),(SUM),(>),(200000),(1440)").rule()
    day = 24 * HOUR_MS
    stream = [
        payment(1, 0, "100000.00"),
        payment(2, HOUR_MS, "100000.00"),  # 200,000 is not greater
        payment(3, HOUR_MS, "150000.00", beneficiary=3),
        payment(4, 2 * HOUR_MS, "150000.00", payer=4),
        payment(5, day, "0.01"),  # the first is exactly 24 h old, and counts
        payment(6, day + 1, "0.01"),  # and now it is older
        payment(7, day + HOUR_MS, "100000.00"),
        payment(8, day + HOUR_MS + 1, "199999.98"),
        payment(9, day + HOUR_MS + 1, "0.01"),
    ]
    assert in_cuts([rule], stream, []) == [
        Alert("7", 5, Decimal("200000.01")),
        Alert("7", 7, Decimal("200000.02")),
        Alert("7", 8, Decimal("300000.00")),
        Alert("7", 9, Decimal("300000.01")),
    ]


def test_a_single_payment_and_a_sum_are_alerts_each_of_its_key():
    rule = parse_plain_line("1,(active),(paymentType),,(paymentAmount),(SUM),(>),(20),(20)").rule()
    stream = [
        payment(1, 0, "22", kind="CSH"),
        payment(2, 1000, "19", kind="CRD"),
        payment(3, 2000, "2", kind="CRD"),
    ]
    assert in_cuts([rule], stream, [1]) == [Alert("1", 1, Decimal(22)), Alert("1", 3, Decimal(21))]


def test_payments_of_one_millisecond_all_count():
    rule = parse_plain_line("1,(active),(paymentType),,(paymentAmount),(SUM),(>),(20),(20)").rule()
    stream = [payment(1, 0, "19"), payment(2, 0, "2", payer=3)]
    assert in_cuts([rule], stream, []) == [Alert("1", 2, Decimal(21))]


def test_a_payment_that_was_overtaken_finds_what_its_window_holds():
    """Not even four minutes after it have taken the first payment from it; the one after it does not count."""
    rule = parse_plain_line("1,(active),(paymentType),,(paymentAmount),(SUM),(>),(10),(4)").rule()
    stream = [payment(number, minute * 60_000, amount) for number, minute, amount in
              [(1, 1, "3"), (2, 2, "3"), (4, 6, "3"), (3, 3, "5")]]  # fmt: skip
    found = in_cuts([rule], stream, [1, 2, 3], late="evaluate", allowed_lateness="3m")
    assert found == [Alert("1", 3, Decimal(11))]


def test_an_average_without_end_and_a_maximum_of_refunds_have_values():
    """The demo's average and maximum end its job at these."""
    names = ("ruleId", "aggregatorFunctionType", "limit", "limitOperatorType")
    chosen = [(1, "AVG", "3.34", "LESS"), (2, "MAX", "0", "LESS")]
    rules = rules_of([WRITTEN[0] | dict(zip(names, each, strict=True)) for each in chosen])
    stream = [payment(1, 0, "-1.00"), payment(2, 1, "10.00"), payment(3, 2, "1.00")]
    assert in_cuts(rules, stream, []) == [
        Alert("1", 1, Decimal(-1)),
        Alert("2", 1, Decimal(-1)),
        Alert("1", 3, Decimal("3.33333333")),  # below 3.34: compared exactly, shown rounded
    ]


def test_a_payment_that_comes_twice_counts_once():
    rule = parse_plain_line("1,(active),(paymentType),,(COUNT_FLINK),(SUM),(>=),(2),(20)").rule()
    stream = [payment(1, 0, "5"), payment(1, 0, "5"), payment(2, 1, "5")]
    assert in_cuts([rule], stream, [1]) == [Alert("1", 2, Decimal(2))]


def test_unique_values_are_counted_once():
    rule = parse_plain_line("1,(active),(payeeId),(beneficiaryId),(COUNT_FLINK),(SUM),(>=),(2),(20)").rule()
    stream = [payment(number, number, "5", beneficiary=to) for number, to in enumerate([2, 2, 3, 2], 1)]
    assert [alert.transaction for alert in in_cuts([rule], stream, [2])] == [3, 4]


# The rules together, on a stream like that of the demo's generator

STREAM = list(transactions(seed=1, count=10_000))
FEW = list(transactions(seed=2, count=1_500, people=15))
"""Payments between so few people that windows hold many of them."""
CUTS = [[], [5_000], [1, 2, 700, 701, 9_999], list(range(400, 10_000, 400))]


def test_the_generators_stream_has_what_the_rules_look_for():
    amounts = [Decimal(each.paymentAmount) for each in STREAM]
    large = [amount for amount in amounts if amount >= 10_000_000]
    assert all(Decimal(5) <= amount < 20 for amount in amounts if amount not in large)
    assert sum(amount > 20_000_000 for amount in large) > 40
    assert sum(amount < 11_000_000 for amount in large) > 60
    assert {each.paymentType for each in STREAM} == {"CSH", "CRD"}
    assert all(0 <= each.payeeId < PEOPLE and 0 <= each.beneficiaryId < PEOPLE for each in STREAM)
    assert list(transactions(seed=1, count=100)) == STREAM[:100] != list(transactions(seed=3, count=100))


@pytest.mark.slow
@pytest.mark.parametrize("ends", CUTS, ids=len)
def test_sums_of_the_demo_are_those_of_a_loop_however_the_stream_is_cut(ends):
    alerts = in_cuts(rules_of(WITHOUT_RESET), STREAM, ends)
    assert alerts == looped(WITHOUT_RESET, STREAM)
    by_rule = Counter(alert.rule_id for alert in alerts)
    assert by_rule["1"] > 40
    assert by_rule["3"] > by_rule["1"] + 60


FUNCTIONS = [
    ("SUM", "paymentAmount", "GREATER", "40000000", 1),
    ("MIN", "paymentAmount", "LESS_EQUAL", "5.10", 1),
    ("MAX", "paymentAmount", "LESS", "19.50", 1),
    ("SUM", "COUNT_FLINK", "EQUAL", "7", 2),
    ("SUM", "COUNT_FLINK", "NOT_EQUAL", "1", 1),
    ("SUM", "COUNT_FLINK", "GREATER_EQUAL", "20", 5),
]


@pytest.mark.slow
@pytest.mark.parametrize("most_ms", [1, 500, 20_000], ids=["in order", "the demo's disorder", "more"])
def test_functions_operators_and_disorder_are_those_of_a_loop(most_ms):
    """With `late: evaluate`, which evaluates a payment that was overtaken at its own time, as the demo does."""
    names = ("aggregatorFunctionType", "aggregateFieldName", "limitOperatorType", "limit", "windowMinutes")
    written = [
        WRITTEN[2] | dict(zip(names, each, strict=True)) | {"ruleId": number, "groupingKeyNames": fields}
        for fields in (["beneficiaryId"], ["payeeId", "paymentType"], [])
        for number, each in enumerate(FUNCTIONS, 10 * (len(fields) + 1))
    ]
    stream = disordered(FEW, seed=4, most_ms=most_ms)
    wanted = looped(written, stream)
    assert len({alert.rule_id for alert in wanted}) > 12
    for ends in ([], list(range(150, 1_500, 150))):
        assert in_cuts(rules_of(written), stream, ends, late="evaluate", allowed_lateness="20s") == wanted


@pytest.fixture(scope="module")
def wanted() -> list[Alert]:
    return looped(WRITTEN, STREAM)


@pytest.mark.parametrize("ends", CUTS, ids=len)
def test_all_rules_of_the_demo_are_those_of_a_loop_however_the_stream_is_cut(ends, wanted):
    alerts = in_cuts(list(load_rules(RULES_FILE, SCHEMA)), STREAM, ends)
    assert alerts == wanted
    assert Counter(alert.rule_id for alert in alerts)["4"] > 90


def test_a_count_that_begins_again_takes_nothing_from_other_rules():
    counted = WRITTEN[3] | {"limit": 3, "windowMinutes": 5}
    other = WRITTEN[2] | {"groupingKeyNames": ["paymentType"], "limit": "20", "windowMinutes": 5}
    stream = [payment(number, number * 1_000, "5.00") for number in range(1, 8)]
    assert in_cuts(rules_of([counted, other]), stream, [4]) == [
        Alert("4", 3, Decimal(3)),
        Alert("3", 4, Decimal(20)),
        Alert("3", 5, Decimal(25)),
        Alert("4", 6, Decimal(3)),
        Alert("3", 6, Decimal(30)),
        Alert("3", 7, Decimal(35)),
    ]


@pytest.mark.parametrize("most_ms", [500, 20_000], ids=["the demo's disorder", "more"])
def test_counts_that_begin_again_are_those_of_a_loop_in_disorder_too(most_ms):
    changes = [("beneficiaryId", 2, 5), ("paymentType", 30, 20), ("payeeId", 3, 1)]
    written = [
        WRITTEN[3] | {"ruleId": number, "groupingKeyNames": [field], "limit": limit, "windowMinutes": minutes}
        for number, (field, limit, minutes) in enumerate(changes)
    ]
    stream = disordered(FEW, seed=6, most_ms=most_ms)
    wanted = looped(written, stream)
    assert min(Counter(alert.rule_id for alert in wanted).values()) > 20
    for ends in ([], list(range(150, 1_500, 150))):
        assert in_cuts(rules_of(written), stream, ends, late="evaluate", allowed_lateness="20s") == wanted

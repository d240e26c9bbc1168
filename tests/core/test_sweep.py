"""Sweeps: what they are written as, which rules they make, and what is refused in one line."""

import pytest

from buckets.errors import BucketsError
from buckets.history.backtest.sweep import Sweep, parse_sweeps, swept_rules
from tests.core.backtests import rule

RULES = [
    rule("r"),
    rule("of.features", 3),
    rule("paused", 1, state="PAUSE"),
    rule("r.limit=1", 1),
]


@pytest.mark.parametrize(
    ("text", "sweep"),
    [
        ("r.limit=1000..10000:10", Sweep("r", "limit", tuple(str(each * 1000) for each in range(1, 11)))),
        ("r.limit=0..1:5", Sweep("r", "limit", ("0.00", "0.25", "0.50", "0.75", "1.00"))),
        ("r.limit=0..1:4", Sweep("r", "limit", ("0.00", "0.33", "0.67", "1.00"))),
        ("r.limit=-5..5:3", Sweep("r", "limit", ("-5", "0", "5"))),
        ("r.limit=10..1:2", Sweep("r", "limit", ("10", "1"))),
        ("r.limit=1, 2.50 ,1e3", Sweep("r", "limit", ("1", "2.50", "1000"))),
        ("r.window=1h,6h,24h", Sweep("r", "window", ("1h", "6h", "24h"))),
        ("r.window=1h..24h:4", Sweep("r", "window", ("1h", "520m", "980m", "24h"))),
        ("r.cooldown=none,90s", Sweep("r", "cooldown", ("none", "90s"))),
        ("of.features.when.payments=5..20:4", Sweep("of.features", "when.payments", ("5", "10", "15", "20"))),
        ("when.recent=7", Sweep("of.features", "when.recent", ("7",))),
        ("recent.window=1s,2s", Sweep("of.features", "recent.window", ("1s", "2s"))),
        ("r.limit=1.limit=3,4", Sweep("r.limit=1", "limit", ("3", "4"))),
    ],
)
def test_a_sweep_is_read(text, sweep):
    assert parse_sweeps([text], RULES) == (sweep,)


@pytest.mark.parametrize(
    "texts",
    [
        ["limit"],
        ["nobody.limit=1,2"],
        ["limit=1,2"],
        ["unknown.window=1h"],
        ["r.when.payments=1"],
        ["of.features.limit=1"],
        ["of.features.when.usual=1"],
        ["paused.limit=1,2"],
        ["r.limit=1..10:1"],
        ["r.limit=1..10:2000"],
        ["r.limit=1..2:500"],
        ["r.limit=high"],
        ["r.limit="],
        ["r.window=1,2"],
        ["r.limit=1,1"],
        ["r.limit=3,2,2.0,2.00"],
        ["of.features.when.payments=1e1,10"],
        ["r.window=1h,60m"],
        ["r.limit=1e400,1"],
        ["r.limit=1..1e300:3"],
        ["r.limit=1,2", "r.limit=3"],
        ["r.limit=1..50:50", "r.window=1s..50s:50"],
    ],
)
def test_what_is_no_sweep_is_refused_in_one_line(texts, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as refused:
        parse_sweeps(texts, RULES)
    assert "\n" not in refused.value.message


def test_the_number_of_a_condition_is_the_one_that_its_feature_is_compared_with(as_worded):
    two = rule("two", 4, when="payments >= 3 OR (payments > 5 AND amount > 4)")
    with pytest.raises(BucketsError, check=as_worded):
        parse_sweeps(["when.payments=1"], [two])
    other = rule("other", 4, when="payments * 2 > 3 AND amount > 4")
    with pytest.raises(BucketsError, check=as_worded):
        parse_sweeps(["when.payments=1"], [other])
    turned = rule("turned", 4, when="-3 <= payments AND NOT amount > 4")
    (made,) = swept_rules(parse_sweeps(["when.payments=1.5"], [turned]), [turned]).rules
    assert made.when.text == "1.5 <= payments AND NOT amount > 4"


def test_variants_are_made_once_and_combined():
    rules = [rule("a"), rule("b", 1)]
    swept = swept_rules(parse_sweeps(["a.limit=1,3", "b.limit=2,3", "a.window=20ms,1s"], rules), rules)
    assert [each.values for each in swept.combinations][:3] == [
        ("1", "2", "20ms"),
        ("1", "2", "1s"),
        ("1", "3", "20ms"),
    ]
    assert len(swept.combinations) == 8
    assert len(swept.rules) == 6
    assert [each.values for each in swept.combinations if each.is_as_written] == [("3", "2", "20ms")]
    assert {each.state for each in swept.rules} == {"SHADOW"}
    assert all(each.is_variant for each in swept.rules)


def test_a_value_that_makes_no_rule_is_refused(as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        swept_rules(parse_sweeps(["r.window=0s,1s"], RULES), RULES)

"""Alerts against the planted truth."""

from buckets.generator.transactions import PatternRecall, compare, others


def case(pattern: str, rule_id: str, *event_ids: str, detect: str) -> dict:
    return {"pattern": pattern, "rule_id": rule_id, "event_ids": list(event_ids), "detect_event_id": detect}


def alert(rule_id: str, event_id: str) -> dict:
    return {"rule_id": rule_id, "event_id": event_id}


TRUTH = [
    case("burst", "r1", "a", "b", "c", detect="b"),
    case("burst", "r1", "d", "e", detect="e"),
    case("burst", "r1", "f", detect="f"),
    case("drain", "r2", "a", detect="a"),
]
ALERTS = [alert("r1", "b"), alert("r1", "c"), alert("r1", "d"), alert("r2", "f"), alert("r2", "x"), alert("r2", "x")]


def test_a_case_is_caught_by_its_own_rule_on_any_of_its_events():
    assert compare(TRUTH, ALERTS) == [
        PatternRecall("burst", "r1", planted=3, caught=2, at_once=1),
        PatternRecall("drain", "r2", planted=1, caught=0, at_once=0),
    ]


def test_without_alerts_nothing_is_caught():
    assert [(each.planted, each.caught, each.at_once) for each in compare(TRUTH, [])] == [(3, 0, 0), (1, 0, 0)]


def test_alerts_on_unplanted_events_are_counted_by_rule():
    assert others(TRUTH, ALERTS) == {"r2": 2}
    assert others([], ALERTS) == {"r1": 3, "r2": 3}

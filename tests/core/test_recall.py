"""Alerts against the planted truth."""

from buckets.generator.transactions import recall


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
    found = [(pattern, rule_id, *counts[:3]) for pattern, rule_id, *counts in recall(TRUTH, ALERTS)]
    assert found == [("burst", "r1", 3, 2, 1), ("drain", "r2", 1, 0, 0)]


def test_without_alerts_nothing_is_caught():
    assert [counts for _, _, *counts in recall(TRUTH, [])] == [[3, 0, 0, 0], [1, 0, 0, 0]]


def test_alerts_on_unplanted_events_are_counted_by_rule():
    assert [others for *_, others in recall(TRUTH, ALERTS)] == [0, 2]

"""What two rules caught, against a loop over lists of alerts; and the alerts of single rules, read from results."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.moment import TimeRange
from buckets.outputs.comparison import compare, compared_columns
from buckets.outputs.recorded_outputs import (
    AlertCount,
    Selection,
    count_alerts,
    has_alerts,
    output_rows,
    rules_with_alerts,
)

Row = dict[str, Any]
EVENTS = {
    f"e{number}": {"time": number * DAY_MS // 3 - DAY_MS, "amount": amount}
    for number, amount in enumerate(["1.50", 2, "-3", None, "x", True, "NaN", 4.25, "0.10", "1e3"])
}
alerts_of = st.dictionaries(st.sampled_from(sorted(EVENTS)), st.sampled_from(["p1", "p2", "p3"]))


def rows(rule_id: str, caught: dict[str, str], field: str = "payer") -> list[Row]:
    return [
        {
            "rule_id": rule_id,
            "event_id": event_id,
            "event_time": EVENTS[event_id]["time"],
            "key": {field: key},
            "event": {"amount": EVENTS[event_id]["amount"], "id": event_id},
        }
        for event_id, key in caught.items()
    ]


AMOUNTS = {"e0": "1.50", "e1": "2", "e2": "-3", "e7": "4.25", "e8": "0.10", "e9": "1e3"}


@given(alerts_of, alerts_of, st.booleans(), st.integers(0, 4), st.randoms())
def test_a_comparison_is_that_of_a_loop(of_a, of_b, same_keys, samples, random):
    alerts = rows("a", of_a) + rows("b", of_b, "payer" if same_keys else "card")
    random.shuffle(alerts)
    found = compare(alerts, "a", "b", "amount", samples)
    naive = {"only_a": [], "only_b": [], "both": []}
    for event_id in EVENTS:
        if event_id in of_a and event_id in of_b:
            naive["both"].append(event_id)
        elif event_id in of_a:
            naive["only_a"].append(event_id)
        elif event_id in of_b:
            naive["only_b"].append(event_id)
    keys_a, keys_b = set(of_a.values()), set(of_b.values())
    keys = {"only_a": keys_a - keys_b, "only_b": keys_b - keys_a, "both": keys_a & keys_b}
    comparable = same_keys or not of_a or not of_b
    for name, part in found.parts.items():
        amounts = [Decimal(AMOUNTS[event_id]) for event_id in naive[name] if event_id in AMOUNTS]
        assert part.events == len(naive[name])
        assert part.keys == (len(keys[name]) if comparable else None)
        assert part.amount == (sum(amounts) if amounts else None)
        assert [each.event_id for each in part.samples] == naive[name][::-1][:samples]
    for day, counts in found.days.items():
        for name, count in counts.items():
            assert count == sum(EVENTS[event_id]["time"] // DAY_MS == day for event_id in naive[name])
    assert sum(sum(counts.values()) for counts in found.days.values()) == len(of_a | of_b)
    union = len(of_a | of_b)
    assert found.overlap == (len(naive["both"]) / union if union else None)
    assert found.share_of("only_a") == (len(naive["both"]) / len(of_a) if of_a else None)
    assert found.share_of("only_b") == (len(naive["both"]) / len(of_b) if of_b else None)


def write_delta(folder: Path, output: str, alerts: list[Row]) -> None:
    table = pa.table(
        {
            "rule_id": [row["rule_id"] for row in alerts],
            "event_id": [row["event_id"] for row in alerts],
            "event_time": pa.array([row["event_time"] * 1000 for row in alerts], pa.timestamp("us", "UTC")),
            "key": [json.dumps(row["key"]) for row in alerts],
            "event": [json.dumps(row["event"]) for row in alerts],
            "value": [1] * len(alerts),
        }
    )
    write_deltalake(folder / output, table, mode="append")


def write_lines(folder: Path, output: str, alerts: list[Row]) -> None:
    with (folder / f"{output}.jsonl").open("a") as file:
        file.writelines(f"{json.dumps(row | {'value': 1})}\n" for row in alerts)


A = rows("a", {"e0": "p1", "e1": "p1", "e4": "p2"})
B = rows("it's b", {"e1": "p3", "e3": "p1"})


@pytest.mark.parametrize("write", [write_delta, write_lines])
def test_only_the_alerts_of_the_rules_and_the_time_are_read(tmp_path, write: Callable[..., None]):
    assert not has_alerts(tmp_path)
    write(tmp_path, "alerts", A[:1])
    write(tmp_path, "alerts", [*A[1:], *B])

    def read(output: str, rules: list[str], *times_ms: int | None) -> list[Row]:
        found = output_rows(
            tmp_path, output, compared_columns("amount"), Selection({"rule_id": rules}, TimeRange(*times_ms))
        )
        return sorted(found, key=lambda row: (row["rule_id"], row["event_time"]))

    assert has_alerts(tmp_path)
    assert read("alerts", ["a", "it's b"]) == [*A, *B]
    assert read("alerts", ["it's b"]) == B
    assert read("alerts", ["a"], A[1]["event_time"]) == A[1:]
    assert read("alerts", ["a"], None, A[1]["event_time"]) == A[:1]
    assert read("alerts", ["c"]) == read("shadow_alerts", ["a"]) == []


def test_a_table_is_counted_and_read_without_its_events(tmp_path):
    write_delta(tmp_path, "alerts", [*A, *B])
    found = output_rows(tmp_path, "alerts", compared_columns(None), Selection({"rule_id": ["it's b"]}))
    assert list(found) == [{name: row[name] for name in row if name != "event"} for row in B]
    first, last = A[0]["event_time"], A[-1]["event_time"]
    assert count_alerts(tmp_path / "alerts", "a") == AlertCount(3, 2, first, last)
    assert count_alerts(tmp_path / "alerts", "c") == AlertCount(0, 0, None, None)
    assert rules_with_alerts(tmp_path) == ["a", "it's b"]


def test_what_cannot_be_read_is_one_line(tmp_path, as_worded):
    (tmp_path / "alerts.jsonl").write_text('{"rule_id": "a"}\n')
    with pytest.raises(BucketsError, check=as_worded):
        list(output_rows(tmp_path, "alerts", ["event_id"]))
    other = tmp_path / "other"
    write_deltalake(other / "alerts", pa.table({"rule_id": ["a"]}))
    with pytest.raises(BucketsError, check=as_worded):
        list(output_rows(other, "alerts", ["event_id"]))

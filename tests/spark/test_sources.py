"""Files and tables as people have them, through a job: the answers are those of the same events in one plain file."""

import csv
import io
import json
import os
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets
from tests.spark.job_folder import FIRST_MTIME_S, JobFolder

pytestmark = pytest.mark.spark
SCHEMA: dict[str, Any] = {
    "event_id": "data.object.id",
    "event_time": {"field": "data.at", "unit": "s"},
    "attributes": {"data.cards[0].number": "string", "device": "string"},
    "measures": {"data.object.amount": {"scale": 2}, "fee": {"scale": 2}},
    "arrays": {"data.cards[].tags[0]": "string"},
}
START_S = 1_772_442_000
OLD = 6
"""Events of before there was a device."""
COUNT = {"aggregate": {"function": "count"}, "window": {"length": "1h"}, "limit": {"operator": ">=", "value": 3}}
SUM = COUNT | {"aggregate": {"function": "sum", "measure": "fee"}, "limit": {"operator": ">", "value": 0}}
RULES = [
    {"rule_id": "by-card", "group_by": ["data.cards[0].number"], **COUNT},
    {"rule_id": "by-device", "group_by": ["device"], **COUNT},
    {"rule_id": "tags", "group_by": [], "where": "'b' IN data.cards[].tags[0]", **COUNT},
    {"rule_id": "fees", "group_by": ["data.cards[0].number"], **SUM},
]
ALERTS = {
    "by-card": ["e4", "e5", "e6", "e7", "e8", "e9"],
    "by-device": ["e8", "e9"],
    "tags": ["e5", "e7", "e9"],
    "fees": ["e6", "e7", "e8", "e9"],
}


def event(number: int) -> dict[str, Any]:
    cards = [{"number": "ab"[number % 2], "tags": []}, {"number": "second", "tags": ["ab"[number % 2], "b"]}]
    inside = {"object": {"id": f"e{number}", "amount": "12.50"}, "at": START_S + number, "cards": cards}
    newer = {} if number < OLD else {"device": "phone", "fee": "0.05"}
    return {"data": inside, "n": number} | newer


EVENTS = [event(number) for number in range(10)]
OBJECT = pa.struct({"id": pa.string(), "amount": pa.string()})
CARD = pa.struct({"number": pa.string(), "tags": pa.list_(pa.string())})
COLUMNS = {
    "data": pa.struct({"object": OBJECT, "at": pa.int64(), "cards": pa.list_(CARD)}),
    "n": pa.int64(),
}
NEWER = {"device": pa.string(), "fee": pa.string()}


def as_csv(events: list[dict[str, Any]]) -> list[str]:
    """The events as records: a header of paths, without the columns that no event has."""
    text = io.StringIO()
    names = [*SCHEMA["measures"], *SCHEMA["attributes"], *SCHEMA["arrays"], "data.object.id", "data.at"]
    rows = [
        {
            "data.object.id": each["data"]["object"]["id"],
            "data.object.amount": each["data"]["object"]["amount"],
            "data.at": each["data"]["at"],
            "data.cards[0].number": each["data"]["cards"][0]["number"],
            "data.cards[].tags[0]": json.dumps(
                [card["tags"][0] if card["tags"] else None for card in each["data"]["cards"]]
            ),
            "device": each.get("device"),
            "fee": each.get("fee"),
        }
        for each in events
    ]
    writer = csv.DictWriter(text, [name for name in names if rows[0][name] is not None], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().splitlines()


def add(job: JobFolder, kind: str, number: int, events: list[dict[str, Any]]) -> None:
    columns = COLUMNS | (NEWER if "device" in events[0] else {})
    table = pa.Table.from_pylist(events, schema=pa.schema(columns))
    if kind == "delta":
        write_deltalake(job.source, table, mode="append", schema_mode="merge")
    elif kind == "parquet":
        path = job.source / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
    elif kind == "csv":
        job.add_file(number, as_csv(events), "csv")
    else:
        job.add_file(number, [json.dumps(each) for each in events])


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "delta"])
def test_older_files_without_a_column_and_fields_in_objects_and_lists(spark, tmp_path, kind):
    source = {"kind": kind, "path": "source"}
    source |= {"arrival": "n"} if kind == "delta" else {}
    source |= {"max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source, trigger={"available_now": True}, archive={"path": "archive"})
    job.write_schema(SCHEMA)
    job.write_rules(RULES)
    add(job, kind, 1, EVENTS[:OLD])
    job.run(spark)
    add(job, kind, 2, EVENTS[OLD:])
    job.run(spark)
    found: dict[str, list[str]] = {rule: [] for rule in ALERTS}
    for row in job.rows("alerts"):
        found[row["rule_id"]].append(row["event_id"])
    assert {rule: sorted(ids) for rule, ids in found.items()} == ALERTS
    assert job.rows("dead_letters") == []
    fees = {row["event_id"]: Decimal(row["value"]) for row in job.rows("alerts") if row["rule_id"] == "fees"}
    assert fees == {"e6": Decimal("0.05"), "e7": Decimal("0.05"), "e8": Decimal("0.10"), "e9": Decimal("0.10")}
    assert buckets.replay(job.conf).is_equal

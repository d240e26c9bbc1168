"""Every reader and every command gives the same answers for the same events, however their file has them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import write_deltalake

import buckets as library
from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.evaluation import first_version
from buckets.events.avro.avro_events import read_plain as read_avro
from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.protobuf_events import read_plain as read_protobuf
from buckets.events.schema import EventSchema
from tests.core.avro_events import encoded as avro_message
from tests.core.avro_events import rows_of
from tests.core.protobuf_events import encoded as protobuf_message

Row = dict[str, Any]
START_S = 1_772_442_000
CARD = 4_000_000_000_000_002


@dataclass(frozen=True)
class Case:
    """Events as one kind of file has them, and at which of them the rule `r` fires: three of one key in an hour.

    Attributes:
        schema: the event schema.
        key: the field by which `r` groups.
        rows: the events.
        alerts: the ids of those at which it fires.
        columns: their types where a format has any.
        avro: the fields of their record.
        proto: their message.
        others: fields by which further rules group, which no event has.
        without_key: the numbers, from 1, of events without a value in `key`.
    """

    schema: Mapping[str, Any]
    key: str
    rows: list[Row]
    alerts: list[str]
    columns: pa.Schema
    avro: list[Any]
    proto: str
    others: tuple[str, ...] = ()
    without_key: tuple[int, ...] = ()

    @property
    def rules(self) -> list[Row]:
        """The rule, and those that no event concerns."""
        return [
            {
                "rule_id": rule_id,
                "group_by": [key],
                "aggregate": {"function": "count"},
                "window": {"length": "1h"},
                "limit": {"operator": ">=", "value": 3},
            }
            for rule_id, key in [("r", self.key), *((f"by-{name}", name) for name in self.others)]
        ]

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=self.columns)


OBJECT = pa.struct({"id": pa.string(), "card": pa.string(), "amount": pa.int64()})
INSIDE = Case(
    schema={
        "event_id": "data.object.id",
        "event_time": {"field": "created", "unit": "s"},
        "attributes": {"data.object.card": "string"},
        "measures": {"data.object.amount": {"scale": 2}},
    },
    key="data.object.card",
    rows=[
        {
            "id": f"evt{n}",
            "created": START_S + n,
            "data": {"object": {"id": f"e{n}", "card": "ab"[n % 2], "amount": 1250}},
        }
        for n in range(8)
    ],
    alerts=["e4", "e5", "e6", "e7"],
    columns=pa.schema({"id": pa.string(), "created": pa.int64(), "data": pa.struct({"object": OBJECT})}),
    avro=[
        {"name": "id", "type": "string"},
        {"name": "created", "type": "long"},
        {
            "name": "data",
            "type": {
                "type": "record",
                "name": "Data",
                "fields": [
                    {
                        "name": "object",
                        "type": {
                            "type": "record",
                            "name": "Object",
                            "fields": [
                                {"name": "id", "type": "string"},
                                {"name": "card", "type": "string"},
                                {"name": "amount", "type": "long"},
                            ],
                        },
                    }
                ],
            },
        },
    ],
    proto="string id = 1; int64 created = 2; Data data = 3; message Data { Object object = 1; }"
    " message Object { string id = 1; string card = 2; int64 amount = 3; }",
)
"""Id, key and measure are inside of objects."""

FLAT: Row = {
    "event_id": "id",
    "event_time": {"field": "at", "unit": "s"},
    "attributes": {"card": "string"},
    "measures": {"amount": {"scale": 2}},
}
FRACTIONS = Case(
    schema=FLAT,
    key="card",
    rows=[
        {"id": f"e{n}", "at": START_S + n, "card": card, "amount": "12.50"}
        for n, card in enumerate([CARD, CARD, None, CARD, CARD + 2, CARD])
    ],
    alerts=["e3", "e5"],
    columns=pa.schema({"id": pa.string(), "at": pa.int64(), "card": pa.float64(), "amount": pa.string()}),
    avro=[
        {"name": "id", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "card", "type": ["null", "double"]},
        {"name": "amount", "type": "string"},
    ],
    proto="string id = 1; int64 at = 2; optional double card = 3; string amount = 4;",
    without_key=(3,),
)
"""Whole numbers that became binary fractions, since one of them is missing."""

OLDER = Case(
    schema=FLAT | {"attributes": {"card": "string", "device": "string"}, "measures": {"fee": {"scale": 2}}},
    key="card",
    rows=[{"id": f"e{n}", "at": START_S + n, "card": "c"} for n in range(4)],
    alerts=["e2", "e3"],
    columns=pa.schema({"id": pa.string(), "at": pa.int64(), "card": pa.string()}),
    avro=[
        {"name": "id", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "card", "type": "string"},
    ],
    proto="string id = 1; int64 at = 2; string card = 3;",
    others=("device",),
)
"""The file lacks columns that newer ones have."""

CASES = {"fields inside of objects": INSIDE, "numbers as fractions": FRACTIONS, "an older file": OLDER}
WRONG_UNIT = Case(
    schema=INSIDE.schema | {"event_time": {"field": "created", "unit": "ms"}},
    key=INSIDE.key,
    rows=INSIDE.rows,
    alerts=[],
    columns=INSIDE.columns,
    avro=INSIDE.avro,
    proto=INSIDE.proto,
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(case: Case, kind: str, folder: Path) -> Path:
    """Write schema, rules and events; return where the events are."""
    (folder / "schema.yaml").write_text(yaml.safe_dump(dict(case.schema)))
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": case.rules}))
    path = folder / f"events.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in case.rows))
    elif kind == "csv":
        pd.json_normalize(case.rows, sep=".").astype(object).to_csv(path, index=False)
    elif kind == "delta":
        write_deltalake(path, case.table)
    else:
        pq.write_table(case.table, path)
    return path


def evaluated(buckets: Any, events: Path) -> list[str]:
    ran = buckets("evaluate", "--events", events, "--schema", "schema.yaml", "--rules", "rules.yaml", "--out", "out")
    assert ran.code == 0, ran.err
    assert Path("out/dead_letters.jsonl").read_text() == ""
    return [json.loads(line)["event_id"] for line in Path("out/alerts.jsonl").read_text().splitlines()]


def backtested(buckets: Any, events: Path) -> int:
    ran = buckets("backtest", "rules.yaml", "--events", events, "--schema", "schema.yaml", "--json", "-")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["dead_letters"] == 0
    return report["total"]["alerts"]


def fired(buckets: Any, events: Path) -> list[str]:
    ran = buckets("features", "rules.yaml", "--events", events, "--schema", "schema.yaml", "--out", "features.parquet")
    assert ran.code == 0, ran.err
    rows = pq.read_table("features.parquet").to_pylist()
    return [row["event_id"] for row in rows if row["r.fired"]]


def check_by_a_test(buckets: Any, events: Path, case: Case) -> None:
    expected: Row = {"alerts": [{"event": event} for event in case.alerts]}
    expected |= {"no_key": list(case.without_key)} if case.without_key else {}
    tests = [{"name": "as they came", "rules": ["r"], "given": {"file": events.name}, "expect": expected}]
    Path("tested.yaml").write_text(yaml.safe_dump({"rules": case.rules, "tests": tests}))
    ran = buckets("rules", "test", "tested.yaml", "--schema", "schema.yaml")
    assert ran.code == 0, f"{ran.out}{ran.err}"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta"])
@pytest.mark.parametrize("name", CASES)
def test_every_command_reads_every_kind_of_file(buckets, folder, name, kind):
    case = CASES[name]
    events = write(case, kind, folder)
    assert backtested(buckets, events) == len(case.alerts)
    assert fired(buckets, events) == case.alerts
    if kind != "delta":
        assert evaluated(buckets, events) == case.alerts
        check_by_a_test(buckets, events, case)
        checked = buckets("rules", "check", "rules.yaml", "--schema", "schema.yaml", "--events", events)
        assert checked.code == 0, checked.err


@pytest.mark.parametrize("name", CASES)
def test_tables_of_python_give_the_same_alerts(name):
    case = CASES[name]
    schema, rules = library.EventSchema.model_validate(case.schema), rules_of(case)
    from_pandas = pa.Table.from_pandas(pd.DataFrame(case.rows))
    for table in (case.table, from_pandas):
        results = library.evaluate(table, rules, schema)
        assert results.alerts["event_id"].to_pylist() == case.alerts
        assert results.dead_letters.num_rows == 0


def rules_of(case: Case) -> list[Any]:
    return [library.Rule.model_validate(rule) for rule in case.rules]


def of_avro(case: Case, schema: EventSchema) -> pa.RecordBatch:
    written = {"type": "record", "name": "Event", "fields": case.avro}
    messages = [avro_message(written, row) for row in case.rows]
    return read_avro(rows_of(messages), schema, WriterSchema("AVRO", json.dumps(written)))


def of_protobuf(case: Case, schema: EventSchema) -> pa.RecordBatch:
    text = f'syntax = "proto3"; message Event {{ {case.proto} }}'
    given = [{name: value for name, value in row.items() if value is not None} for row in case.rows]
    messages = [protobuf_message(text, row, "Event") for row in given]
    return read_protobuf(rows_of(messages), schema, WriterSchema("PROTOBUF", text), "Event")


@pytest.mark.parametrize("read", [of_avro, of_protobuf])
@pytest.mark.parametrize("name", CASES)
def test_messages_give_the_same_alerts(name: str, read: Callable[[Case, EventSchema], pa.RecordBatch]):
    case = CASES[name]
    schema, engine = EventSchema.model_validate(case.schema), EngineSettings()
    rule_set = first_version(rules_of(case), schema, engine)
    scored = InMemoryJob(Scorer(schema, engine, evaluations=False)).score_batch([read(case, schema)], rule_set)
    decoder = OutputDecoder(rule_set, schema, engine)
    assert "dead_letters" not in scored.payloads
    assert sorted(decoder.table("alerts", scored.payloads["alerts"])["event_id"].to_pylist()) == case.alerts


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta"])
def test_every_command_tells_of_a_unit_that_does_not_fit(buckets, folder, kind):
    events = write(WRONG_UNIT, kind, folder)
    schema = ("--schema", "schema.yaml")
    of_events = ("--events", events, *schema)
    tests = [{"name": "t", "given": {"file": events.name}, "expect": {"alerts": []}}]
    Path("tested.yaml").write_text(yaml.safe_dump({"rules": WRONG_UNIT.rules, "tests": tests}))
    commands = {
        "backtest": ("backtest", "rules.yaml", *of_events),
        "features": ("features", "rules.yaml", *of_events, "--out", "out.parquet"),
        "evaluate": ("evaluate", *of_events, "--rules", "rules.yaml", "--out", "out"),
        "check": ("rules", "check", "rules.yaml", *of_events),
        "test": ("rules", "test", "tested.yaml", *schema),
    }
    for name in ("backtest", "features") if kind == "delta" else commands:
        ran = buckets(*commands[name])
        assert ran.code == 1, name
        assert "and with `unit: s` they are from 2026-03-02 09:00:00" in f"{ran.out}{ran.err}", name

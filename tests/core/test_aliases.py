"""Fields that have got another name: read under it whatever they are called, in rules and state as if nothing was."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets
from buckets.archive.delta_source import open_events
from buckets.config.engine import EngineSettings
from buckets.config.job import schema_faults
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError, refuse
from buckets.events.arrivals import parse
from buckets.events.decoded import PinnedProtobuf
from buckets.events.event_file import lacking, open_event_file
from buckets.events.schema import EventSchema
from buckets.feeds.rules.rule_book import RuleBook
from buckets.rules.completeness import Fill
from buckets.rules.renaming import check_names, renamed_rules
from buckets.rules.rule_set import first_rule_set
from tests.core.avro_events import encoded as avro_encoded
from tests.core.checkpoints import basis, ran, schema_with
from tests.core.examples import SCHEMA, rule, with_new_names
from tests.core.pinned import Pinned
from tests.core.protobuf_events import encoded as protobuf_encoded
from tests.core.read_messages import TestMessage, read_messages
from tests.fixed_rules import FixedRules

OLD = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": {"payer": "string", "account": "long", "vip": "boolean"},
        "measures": {"amount": {"scale": 2}},
        "arrays": {"tags[]": "string"},
        "derive": {"loud": "upper(payer)", "twice": "amount * 2 + account", "size": "array_size(tags[])"},
    }
)
NAMES = {
    "id": "key",
    "at": "time",
    "payer": "debtor",
    "account": "number",
    "vip": "is_vip",
    "amount": "sum",
    "tags[]": "labels[]",
}
NEW = with_new_names(OLD, NAMES)
ROWS = [
    {
        "id": "1",
        "at": 1_700_000_000_000,
        "payer": "Ä",
        "account": 7,
        "vip": True,
        "amount": "12.50",
        "tags": ["a", "b"],
    },
    {"id": "2", "at": 1_700_000_000_001, "payer": None, "account": None, "vip": None, "amount": None, "tags": None},
]
KINDS = {
    "id": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "payer": pa.string(),
    "account": pa.int16(),
    "vip": pa.bool_(),
    "amount": pa.decimal128(30, 4),
    "tags": pa.list_(pa.string()),
}


def named(name: str, names: Mapping[str, str]) -> str:
    """What a column, an array without its brackets, is called."""
    return names.get(name, names.get(f"{name}[]", name)).removesuffix("[]")


def table_of(rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> pa.Table:
    typed = [
        row | {"at": row["at"] * 1000, "amount": None if row["amount"] is None else Decimal(row["amount"])}
        for row in rows
    ]
    return pa.table({named(name, names): pa.array([row[name] for row in typed], kind) for name, kind in KINDS.items()})


def write_json(folder: Path, rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> Path:
    path = folder / f"{len(names)}.jsonl"
    lines = [json.dumps({named(name, names): value for name, value in row.items()}) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_csv(folder: Path, rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> Path:
    def cell(value: Any) -> str:
        return '"' + json.dumps(value).replace('"', '""') + '"' if isinstance(value, list) else str(value or "")

    path = folder / f"{len(names)}.csv"
    header = ",".join(names.get(name, name) for name in ("tags[]" if name == "tags" else name for name in KINDS))
    path.write_text("\n".join([header, *(",".join(cell(row[name]) for name in KINDS) for row in rows), ""]))
    return path


def write_parquet(folder: Path, rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> Path:
    path = folder / f"{len(names)}.parquet"
    pq.write_table(table_of(rows, names), path)
    return path


def write_delta(folder: Path, rows: Sequence[dict[str, Any]], names: Mapping[str, str]) -> Path:
    path = folder / "table"
    write_deltalake(path, table_of(rows, names), mode="append", schema_mode="merge")
    return path


def values_of(path: Path, schema: EventSchema) -> list[list[Any]]:
    """The events of a file or table, by their time, without the names of their fields."""
    found: list[list[Any]] = []
    for rows in open_events(path, schema, None, print):
        events, dead = parse(rows, schema, frozenset())
        assert dead == []
        fields = [*events.attributes.values(), *events.measures.values()]
        columns = [events.event_id.to_pylist(), events.times_ms.tolist(), *(column.to_pylist() for column in fields)]
        found += map(list, zip(*columns, strict=True))
    return sorted(found, key=lambda row: row[1])


@pytest.mark.parametrize("write", [write_json, write_csv, write_parquet, write_delta])
@pytest.mark.parametrize("written", [{}, NAMES, {"payer": "debtor", "at": "time"}], ids=["old", "new", "some"])
def test_a_field_is_read_under_its_new_name_whatever_it_is_called(tmp_path, write, written):
    (tmp_path / "old").mkdir()
    expected = values_of(write(tmp_path / "old", ROWS, {}), OLD)
    assert values_of(write(tmp_path, ROWS, written), NEW) == expected
    assert [set(OLD.derive).issubset(OLD.all_fields), expected[0].count("Ä")] == [True, 2]


def test_rows_of_a_table_have_their_fields_in_columns_of_both_names(tmp_path):
    names = {old: new for old, new in NAMES.items() if old != "at"}  # The time orders the rows of a table.
    expected = values_of(write_delta(tmp_path / "old", ROWS, {}), OLD)
    write_delta(tmp_path, ROWS[:1], {})
    assert values_of(write_delta(tmp_path, ROWS[1:], names), with_new_names(OLD, names)) == expected


def test_what_is_made_of_fields_is_made_of_them_by_either_name(tmp_path):
    made = {"hash": ["payer", "at", "amount"]}
    old = EventSchema.model_validate(OLD.model_dump() | {"event_id": made})
    names = {name: new for name, new in NAMES.items() if name != "id"}
    new = with_new_names(old, names)
    (tmp_path / "old").mkdir()
    expected = values_of(write_json(tmp_path / "old", ROWS, {}), old)
    for written in ({}, names):
        assert values_of(write_json(tmp_path, ROWS, written), new) == expected


AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "payer", "type": ["null", "string"]},
        {"name": "account", "type": ["null", "int"]},
        {"name": "vip", "type": ["null", "boolean"]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
    ],
}
PROTO = """syntax = "proto3";
message Payment {
  string id = 1; int64 at = 2; optional string payer = 3; optional sint32 account = 4; optional bool vip = 5;
  optional string amount = 6; repeated string tags = 7;
}
"""


@pytest.mark.parametrize("written_in", ["json", "avro", "protobuf"])
@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_a_message_with_old_names_is_read_under_the_new_ones(tmp_path, written_in, envelope):
    source, pinned = {"format": written_in} | ({"envelope": envelope} if envelope else {}), Pinned()
    if written_in == "json":
        values = [json.dumps({"op": "c", "after": row} if envelope else row).encode() for row in ROWS]
    elif written_in == "avro":
        kind = AVRO
        rows = [
            row | {"at": row["at"] * 1000, "amount": None if row["amount"] is None else Decimal(row["amount"])}
            for row in ROWS
        ]
        if envelope:
            fields = [{"name": "op", "type": "string"}, {"name": "after", "type": AVRO}]
            kind, rows = (
                {"type": "record", "name": "Change", "fields": fields},
                [{"op": "c", "after": row} for row in rows],
            )
        pinned = Pinned(avro_schema=json.dumps(kind))
        values = [avro_encoded(kind, row) for row in rows]
    else:
        text = PROTO + ("message Change { string op = 1; Payment after = 2; }" if envelope else "")
        message = "Change" if envelope else "Payment"
        pinned = Pinned(protobuf=PinnedProtobuf(text=text, message=message))
        rows = [{name: value for name, value in row.items() if value is not None} for row in ROWS]
        values = [protobuf_encoded(text, {"op": "c", "after": row} if envelope else row, message) for row in rows]
    messages = [TestMessage(value) for value in values]
    old, new = (
        read_messages(tmp_path / name, messages, schema.model_dump(mode="json"), source, pinned)
        for name, schema in (("old", OLD), ("new", NEW))
    )
    assert new.dead == old.dead == {}
    assert [{NAMES.get(name, name): value for name, value in event.items()} for event in old.events] == new.events
    derived = [{name: event.get(name) for name in OLD.derive} for event in old.events]
    assert [(each["loud"], each["twice"]) for each in derived] == [("Ä", 3200), (None, None)]


def test_where_an_event_has_both_names_the_new_one_counts(tmp_path):
    both = [ROWS[0] | {"debtor": "new", "sum": "1"}, ROWS[1] | {"payer": "old", "debtor": None}]
    path = write_json(tmp_path, both, {})
    found = values_of(path, NEW)
    assert [row[2] for row in found] == ["new", "old"]
    assert found[0][-2:] == [100, 900]


BACK = {"who.payer": "payer", "who.account": "account"}
UNUSABLE = {"id": ["1"], "at": {}, "payer": {"o": 1}, "account": [7], "vip": {}, "amount": ["1"], "tags": "a"}


@pytest.mark.parametrize("names", [NAMES, {"payer": "debtor"}, {"amount": "sum"}])
def test_an_old_name_is_not_looked_at_where_the_new_one_has_a_value(tmp_path, names):
    (tmp_path / "old").mkdir()
    expected = values_of(write_json(tmp_path / "old", ROWS[:1], {}), OLD)
    row = {named(name, names): value for name, value in ROWS[0].items()}
    unusable = {name: value for name, value in UNUSABLE.items() if named(name, names) != name}
    assert values_of(write_json(tmp_path, [row | unusable], {}), with_new_names(OLD, names)) == expected
    inside = with_new_names(OLD, {"payer": "who.payer"} | {"account": "who.account"})
    assert values_of(write_json(tmp_path, [ROWS[0] | {"who": "x"}], {}), with_new_names(inside, BACK)) == expected


def test_an_old_name_that_is_unusable_is_a_dead_letter_where_it_counts(tmp_path):
    messages = [TestMessage(json.dumps({"id": "1", "at": 1, **row}).encode()) for row in ({"payer": {}}, {"payer": 1})]
    dead = read_messages(tmp_path, messages, NEW.model_dump(mode="json"), {"format": "json"}, Pinned()).dead
    assert list(dead.values()) == ["payer: is an object, and must be one value"]


def test_in_avro_an_old_name_is_not_looked_at_where_the_new_one_has_a_value(tmp_path):
    fields = [*AVRO["fields"], {"name": "debtor", "type": ["null", "string"]}]
    fields[2] = {"name": "payer", "type": {"type": "record", "name": "Payer", "fields": []}}
    kind = AVRO | {"fields": fields}
    both = [{"id": each, "at": 1, "payer": {}, "debtor": debtor} for each, debtor in (("1", "x"), ("2", None))]
    values = [avro_encoded(kind, dict.fromkeys(("account", "vip", "amount", "tags")) | row) for row in both]
    source, pinned = {"format": "avro"}, Pinned(avro_schema=json.dumps(kind))
    read = read_messages(
        tmp_path, [TestMessage(value) for value in values], NEW.model_dump(mode="json"), source, pinned
    )
    assert ([event["debtor"] for event in read.events], len(read.dead)) == (["x"], 1)


def test_of_several_old_names_the_first_with_a_value_counts(tmp_path):
    schema = EventSchema.model_validate(OLD.model_dump() | {"aliases": {"payer": ["first", "second"]}})
    several = [{"first": "a", "second": "b"}, {"first": None, "second": "b"}, {"second": "c", "first": "d"}]
    path = write_json(tmp_path, [ROWS[0] | {"payer": None} | each for each in several], {})
    assert [row[2] for row in values_of(path, schema)] == ["a", "b", "d"]


def test_what_is_wrong_with_aliases_names_its_line(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_text("event_id: id\nevent_time: at\nattributes: {payer: string}\naliases:\n  payer:\n  - p\n  - at\n")
    with pytest.raises(BucketsError, match=r"schema\.yaml:7: aliases: 'at'"):
        buckets.load_event_schema(path)


def test_a_field_that_is_there_under_an_old_name_is_not_missing(tmp_path):
    assert lacking([open_event_file(write_csv(tmp_path, ROWS, {}), NEW)], NEW, ["debtor", "sum"]) == ""
    without = write_json(tmp_path, [{"id": "1", "at": 1}], {})
    assert "debtor" in lacking([open_event_file(without, NEW)], NEW, ["debtor"])


def test_a_table_is_scored_under_either_name():
    old, new = (
        buckets.evaluate(table_of(ROWS, {}), [rule(group_by=[by], measure=of)], schema).evaluations
        for by, of, schema in (("payer", "amount", OLD), ("debtor", "sum", NEW))
    )
    assert old["value"].to_pylist() == new["value"].to_pylist() != []
    assert new["key"].to_pylist() == [{"debtor": "Ä"}]


@pytest.mark.parametrize(
    "changes",
    [
        {"aliases": {"nobody": ["payer_id"]}},
        {"aliases": {"payer": ["kind"]}},
        {"aliases": {"payer": ["p"], "kind": ["p"]}},
        {"aliases": {"payer": ["p", "p"]}},
        {"aliases": {"payer": ["payers[]"]}},
        {"aliases": {"payer": ["p"]}, "origins": {"payer": "headers.payer"}},
        {"aliases": {"id": ["key"]}, "event_id": {"hash": ["payer"], "field": "id"}},
    ],
    ids=["no field", "another field", "two fields", "twice", "array", "beside the value", "made"],
)
def test_an_alias_that_says_nothing_clear_is_refused_in_one_line(changes, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        schema_with(**changes)


def test_names_that_a_table_cannot_have_both_are_refused_where_there_is_an_archive(tmp_path, as_worded):
    written = {
        "source": {"kind": "json", "path": "x"},
        "schema": "s",
        "rules": "r",
        "checkpoint": "c",
        "output": {"path": "t"},
    }
    schema = with_new_names(SCHEMA, {"payer": "Payer"})
    plain, archived = (JobSettings.model_validate(written | each) for each in ({}, {"archive": {"path": "a"}}))
    refuse(schema_faults(tmp_path / "conf.yaml", plain, schema))
    with pytest.raises(BucketsError, check=as_worded):
        refuse(schema_faults(tmp_path / "conf.yaml", archived, schema))


RULES = [rule(), rule("kinds", "fee", group_by=["kind", "payer"], where="fee > 1")]
WHO = with_new_names(SCHEMA, {"payer": "who", "fee": "charge", "kind": "a kind"})
SAME = [rule(group_by=["who"]), rule("kinds", "charge", group_by=["a kind", "who"], where="charge > 1")]


def book_of(checkpoint, rules, schema: EventSchema) -> RuleBook:
    book = RuleBook(checkpoint, FixedRules(rules), schema, EngineSettings(allowed_lateness="0ms"))
    book.start()
    return book


def test_after_a_restart_with_new_names_rules_keep_their_versions_and_groups_their_state(checkpoint):
    book = book_of(checkpoint, RULES, SCHEMA)
    assert ran(book, 0) == 1
    before = book.in_force
    book = book_of(checkpoint, SAME, WHO)
    assert [ran(book, 1), ran(book, 2)] == [2, 2]
    now = book.in_force
    assert [each.version for each in now.rules] == [1, 1]
    assert [each.group_id for each in now.groups] == [each.group_id for each in before.groups]
    assert [each.generation for each in now.groups] == [1, 1]
    assert [each.key_fields for each in now.groups] == [("who",), ("a kind", "who")]
    assert checkpoint.versions.rule_set(2) == now
    assert checkpoint.versions.history()[-1].changes == ()
    # The old names come back: so do the first ones.
    book = book_of(checkpoint, RULES, with_new_names(WHO, {"who": "payer", "charge": "fee", "a kind": "kind"}))
    assert ran(book, 3) == 3
    assert (book.in_force.groups, book.in_force.first_names) == (before.groups, {})


def test_a_rule_that_changes_with_its_names_is_a_change_of_it_alone(checkpoint):
    ran(book_of(checkpoint, RULES, SCHEMA), 0)
    changed = [SAME[0], rule("kinds", "charge", length="2h", group_by=["a kind", "who"], where="charge > 1")]
    book = book_of(checkpoint, changed, WHO)
    assert ran(book, 1) == 2
    assert [each.version for each in book.in_force.rules] == [1, 2]
    assert [each.rule_id for each in checkpoint.versions.history()[-1].changes] == ["kinds"]


def test_a_batch_that_is_run_again_has_the_names_that_it_began_with(checkpoint):
    begun = book_of(checkpoint, RULES, SCHEMA).for_batch(0)
    book = book_of(checkpoint, SAME, WHO)
    assert book.for_batch(0) == begun
    book.done(0, begun, ())
    assert [each.group_by for each in book.for_batch(1).rules] == [("who",), ("a kind", "who")]


def test_a_new_field_with_the_first_name_of_another_is_refused(checkpoint, as_worded):
    ran(book_of(checkpoint, RULES, SCHEMA), 0)
    ran(book_of(checkpoint, SAME, WHO), 1)
    taken = EventSchema.model_validate(
        WHO.model_dump() | {"aliases": {}, "attributes": WHO.attributes | {"payer": "long"}}
    )
    with pytest.raises(BucketsError, check=as_worded):
        book_of(checkpoint, SAME, taken)


def test_names_stay_while_history_is_filled_in(as_worded):
    rules = first_rule_set(RULES)
    filling = type(rules)(**(vars(rules) | {"fills": (Fill(1, rules.groups[0].group_id, ("r",), 0),)}))
    check_names(filling, SCHEMA)
    with pytest.raises(BucketsError, check=as_worded):
        check_names(filling, WHO)


def test_a_checkpoint_goes_on_under_new_names_and_says_so(checkpoint, as_worded):
    checkpoint.job.open(basis())
    now = basis(schema=WHO)
    assert as_worded(checkpoint.job.carried_over(now))
    checkpoint.job.open(now)
    assert checkpoint.job.carried_over(now) is None
    joined = schema_with(attributes={"who": "string"}, aliases={"who": ["payer", "kind"]})
    conflict = basis(schema=joined).conflict(basis().to_json())
    assert conflict is not None
    assert as_worded(conflict)
    taken = {"attributes": {**WHO.attributes, "payer": "string"}, "aliases": {}}
    for other in (taken, {"aliases": {"a kind": ["payer"]}}):
        changed = EventSchema.model_validate(WHO.model_dump() | other)
        conflict = basis(schema=changed).conflict(now.to_json())
        assert conflict is not None
        assert as_worded(conflict)


def test_an_alias_that_no_rule_names_changes_no_rules():
    rules = first_rule_set(RULES)
    assert renamed_rules(rules, {"PAYER_ID": "payer"}) is rules

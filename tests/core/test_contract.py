"""The published schemas: valid, fit for what is really sent, and the same to a validator as to the audit."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from buckets.audit.tables import (
    MESSAGE_COLUMNS,
    TRANSACTIONS,
    UNREADABLE,
    MessageReader,
    audit_tables,
    read_message,
    rows_of,
)
from buckets.events.arrivals import RAW
from buckets.outputs import columns
from buckets.outputs.contract import MOMENT, load_contract, schema_path
from buckets.outputs.messages import Message
from buckets.rules.change import parse_change
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.pipeline import Pipeline
from tests.core.real_messages import messages_of, real_messages
from tests.published_policies import published
from tests.spark.payments import EVENT_SCHEMA, RULES, payments

SCHEMAS = (*sorted({each.contract for each in columns.PUBLISHED.values()}), "rule-change-v1")
TABLES = audit_tables(columns.TOPICS)
BUCKETED = {"precision": {"tail": "0ms", "resolution": "300ms"}}


def schema(name: str) -> dict:
    return json.loads(schema_path(name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def sent() -> dict[str, list[Message]]:
    return real_messages()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_published_schema_is_a_valid_schema_and_describes_every_field(name):
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$id"] == f"urn:buckets:{name}"

    def described(part: object) -> None:
        if isinstance(part, dict):
            for field in part.get("properties", {}).values():
                assert field.get("description") or "$ref" in field or "const" in field or "type" in field
            for each in part.values():
                described(each)

    described(schema(name))
    assert all(field["description"] for field in schema(name).get("properties", {}).values())


@pytest.mark.parametrize("output", columns.TOPICS)
def test_real_messages_fit_their_schema_and_have_no_field_that_it_does_not_describe(sent, output):
    published = schema(columns.PUBLISHED[output].contract)
    check = Draft202012Validator(published | {"additionalProperties": False})
    assert sent[output]
    for message in sent[output]:
        value = json.loads(message.value)
        check.validate(value)
        assert value["version"] == columns.PUBLISHED[output].version


@pytest.mark.parametrize("engine", [{}, BUCKETED], ids=["exact", "in buckets"])
@pytest.mark.parametrize("output", columns.TOPICS)
def test_real_messages_are_read_whole_and_fulfil_every_check(output, engine):
    columns = {column.name: column for column in TABLES[output].columns}
    for message in real_messages(**engine)[output]:
        said, row = json.loads(message.value), read_message(TABLES[output], message.value.encode())
        assert row.pop("other_fields") is None
        assert row.keys() == said.keys()
        for name, value in row.items():
            if columns[name].type == MOMENT:
                assert value == (None if said[name] is None else said[name] * 1000)
            elif isinstance(value, Decimal):
                assert value == Decimal(said[name])
            else:
                is_json = isinstance(said[name], dict) or (name == "terms" and value is not None)
                assert value == (json.dumps(said[name], ensure_ascii=False) if is_json else said[name])
            assert value is not None or columns[name].nullable


BEFORE_THE_EVENT: list[dict[str, Any]] = [
    {
        "rule_id": "before",
        "group_by": ["payer"],
        "features": {"n": {"function": "count", "window": {"length": "1s", "offset": "200ms"}}},
        "when": "n >= 1",
    },
    {
        "rule_id": "days-before",
        "group_by": ["payer"],
        "features": {"usual": {"function": "avg", "of": {"function": "count", "every": "1d"}, "window": "3d"}},
        "when": "usual >= 0",
    },
]


def test_alerts_of_which_all_windows_end_before_the_event_fulfil_every_check():
    rules = [Rule.model_validate(rule) for rule in BEFORE_THE_EVENT]
    pipeline = Pipeline(first_rule_set(tuple(rules)), EVENT_SCHEMA, shards=2, allowed_lateness="100ms")
    pipeline.batch([[{RAW: json.dumps(row)} | row for row in payments(60)]])
    alerts = messages_of(pipeline)[columns.ALERTS]
    read = [read_message(TABLES[columns.ALERTS], alert.value.encode()) for alert in alerts]
    assert {row["rule_id"] for row in read} == {"before", "days-before"}
    assert all(row["window_end"] < row["event_time"] for row in read)


def changed(message: Message, **fields: object) -> bytes:
    return json.dumps(json.loads(message.value) | fields).encode()


@pytest.mark.parametrize(("missing", "check"), [("lower", "value_in_bounds"), ("count", "count_in_bounds")])
def test_a_value_without_its_bounds_and_a_count_that_is_missing_are_refused(sent, missing, check):
    with pytest.raises(ValueError, match=check):
        read_message(TABLES[columns.ALERTS], changed(sent[columns.ALERTS][0], **{missing: None}))


FAULTS = [
    {"version": 3},
    {"alert_id": ""},
    {"alert_id": None},
    {"rule_id": "x" * 201},
    {"rule_version": 0},
    {"rule_version": 2**31},
    {"count": True},
    {"count": 2**63},
    {"event_time": 10**16},
    {"event_time": 1.5},
    {"value": 12.5},
    {"value": "1e5"},
    {"exact": "yes"},
    {"key": "p1"},
    {"group_by": [1]},
    {"operator": "=>"},
    {"limit": "much"},
    {"rule": "\ud83d"},
]


@pytest.mark.parametrize("fields", FAULTS, ids=[next(iter(fields)) for fields in FAULTS])
def test_a_message_that_does_not_fit_is_refused_with_field_and_reason(sent, fields, as_worded):
    value = changed(sent[columns.ALERTS][0], **fields)
    with pytest.raises(ValueError, check=as_worded):
        read_message(TABLES[columns.ALERTS], value)
    is_of_json = not any(isinstance(value, str) and "\ud83d" in value for value in fields.values())
    in_range = all(not isinstance(value, int) or abs(value) < 2**31 for value in fields.values())
    if is_of_json and in_range:
        assert not Draft202012Validator(schema("alert-v2")).is_valid(json.loads(value))


BROKEN = [
    None,
    b"\xff",
    b"[1]",
    b"{}",
    b'{"version": NaN}',
    b"[" * 100_000,
    b"{",
]


@pytest.mark.parametrize("value", BROKEN)
def test_what_is_no_object_is_refused_with_the_reason(value, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        read_message(TABLES[columns.DUPLICATES], value)


CHECKED = {
    "value_in_bounds": {"lower": "99999", "exact": False},
    "exact_is_one_value": {"upper": "99999", "exact": True},
    "exact_is_certain": {"certain": False, "exact": True},
    "count_in_bounds": {"count_lower": 2**40},
    "window_has_length": {"window_start": 2**41},
    "window_ends_by_event": {"window_end": 2**41},
    "fired": {"operator": ">", "limit": "9999999999"},
}


@pytest.mark.parametrize("fields", CHECKED.values(), ids=CHECKED)
def test_a_message_that_contradicts_itself_is_refused_by_the_check_of_its_table(sent, fields, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        read_message(TABLES[columns.ALERTS], changed(sent[columns.ALERTS][0], **fields))


def test_a_field_that_came_to_the_schema_later_is_null_in_messages_from_before(sent):
    message = json.loads(sent[columns.ALERTS][0].value)
    added = [message.pop(name) for name in ("count_lower", "count_upper")]
    assert added == [message["count"]] * 2
    row = read_message(TABLES[columns.ALERTS], json.dumps(message).encode())
    assert (row["count_lower"], row["count_upper"]) == (None, None)
    Draft202012Validator(schema("alert-v2")).validate(message)


@pytest.mark.parametrize(
    ("operator", "limit", "is_refused"),
    [(">", "33.333333331", False), ("<", "33.333333331", False), (">", "33.333334", True), ("=", "33.333334", True)],
)
def test_an_average_may_have_crossed_a_limit_that_it_is_rounded_to(sent, operator, limit, is_refused, as_worded):
    value = dict.fromkeys(("value", "lower", "upper"), "33.333333")
    message = changed(sent[columns.ALERTS][0], operator=operator, limit=limit, **value)
    if is_refused:
        with pytest.raises(ValueError, check=as_worded):
            read_message(TABLES[columns.ALERTS], message)
    else:
        assert read_message(TABLES[columns.ALERTS], message)["limit"] == limit


def test_fields_of_a_later_release_are_kept_as_they_are(sent):
    value = changed(sent[columns.ALERTS][0], risk=0.5, labels=["a"])
    row = read_message(TABLES[columns.ALERTS], value)
    assert json.loads(row["other_fields"]) == {"risk": 0.5, "labels": ["a"]}


def test_a_batch_of_several_topics_keeps_every_message_readable_or_not(sent):
    topics = {f"t-{name}": TABLES[name] for name in columns.TOPICS} | {"t-transactions": TABLES[TRANSACTIONS]}
    messages = [(f"t-{name}", each.value.encode()) for name in columns.TOPICS for each in sent[name]]
    messages.insert(3, ("t-alerts", b"bro\xffken"))
    messages += [("t-transactions", b"bro\xffken"), ("t-transactions", None), ("t-transactions", b"{}")]
    read = pa.Table.from_batches(MessageReader(topics)([batch_of(messages)]))

    offsets = set()
    for table in TABLES.values():
        rows = rows_of(table, read)
        assert rows.schema.names == [column.name for column in table.columns]
        for row in rows.to_pylist():
            offsets.add(row["offset"])
            topic, value = messages[row["offset"]]
            if table.contract is None:
                assert (row["topic"], row["value_bytes"] or row["value"]) in ((topic, value), (topic, "{}"))
                assert (row["key"], row["headers"]) == ("k", [{"key": "id", "value": b"h"}])
                assert row["day"] == PUBLISHED.date()
            else:
                said = json.loads(value)
                assert (topic, row["position"]) == (f"t-{table.name}", said["position"])
                moment = datetime.fromtimestamp(said["event_time"] / 1000, UTC) if "event_time" in said else PUBLISHED
                assert row["day"] == moment.date()
    assert [row["reason"] for row in rows_of(TABLES[UNREADABLE], read).to_pylist()] == ["is not valid UTF-8 at byte 3"]
    assert offsets == set(range(len(messages)))


PUBLISHED = datetime(2024, 10, 4, 23, 59, 59, tzinfo=UTC)


def batch_of(messages: Sequence[tuple[str, bytes | None]]) -> pa.RecordBatch:
    """Messages as Spark hands them over: topic and value, at offsets from 0."""
    count = len(messages)
    columns = {
        "topic": [topic for topic, _ in messages],
        "partition": [0] * count,
        "offset": list(range(count)),
        "published_at": [PUBLISHED] * count,
        "key": [b"k"] * count,
        "value": [value for _, value in messages],
        "headers": [[{"key": "id", "value": b"h"}]] * count,
        "timestamp_type": [0] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=MESSAGE_COLUMNS)


RULE = RULES[1]
CHANGES = [
    {"change": "put", "rule": RULE, "author": "ann", "reason": "too many alerts"},
    {"change": "state", "rule_id": "a", "state": "PAUSE", "time": 5},
    {"change": "delete", "rule_id": "a"},
    {"change": "clear_state", "rule_id": "a"},
    {"change": "clear_all_state"},
    {"change": "delete_all"},
    {"change": "export"},
    *RULES,
    RULE | {"rule_id": 5, "where": {"kind": ["CARD", "CASH"], "amount": {">": "100", "<=": 200}}},
    RULE | {"where": "kind = 'CARD' OR amount IS NULL"},
    RULE | {"aggregate": {"function": "count", "measure": None}},
]
PERCENTILE = {"function": "percentile", "of": "amount", "window": "1h", "p": 95}
WITH_FEATURES = {"rule_id": "f", "group_by": ["payer"], "features": {"f": PERCENTILE}, "when": "f > 2"}
CHANGES += [
    WITH_FEATURES,
    WITH_FEATURES
    | {"features": {"f": PERCENTILE | {"p": "99.9"}, "g": PERCENTILE | {"function": "median", "p": None}}},
]
NO_CHANGES = [
    WITH_FEATURES | {"features": {"f": PERCENTILE | {"p": 0}}},
    WITH_FEATURES | {"features": {"f": PERCENTILE | {"p": 101}}},
    WITH_FEATURES | {"features": {"f": PERCENTILE | {"p": None}}},
    WITH_FEATURES | {"features": {"f": PERCENTILE | {"function": "mode"}}},
    WITH_FEATURES | {"features": {"f": {"function": "percentile", "of": "amount", "window": "1h"}}},
    {"change": "put"},
    {"change": "puts", "rule": RULE},
    {"change": "state", "rule_id": "a"},
    {"change": "state", "rule_id": "a", "state": "ON"},
    {"change": "state", "rule_id": "a", "state": "DELETE"},
    {"change": "delete"},
    {"change": "export", "rule_id": "a"},
    {"change": "delete", "rule_id": "a", "who": "ann"},
    {"change": "export", "time": -1},
    *(RULE | {"rule_id": rule_id} for rule_id in ("!state a", " ", " a", "a ", "a\nb")),
    RULE | {"version": 0},
    RULE | {"aggregate": {"function": "sum"}},
    RULE | {"window": {"length": "5 minutes"}},
    RULE | {"limit": {"operator": "=>", "value": "2"}},
    RULE | {"where": ""},
    RULE | {"where": {"kind": []}},
    RULE | {"where": {"kind": {"like": "C"}}},
    RULE | {"group_by": ["payer", "payer"]},
    {name: value for name, value in RULE.items() if name != "limit"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.get("change", "rule"))
def test_what_is_a_change_of_rules_is_one_by_the_schema(change):
    check = Draft202012Validator(schema("rule-change-v1"))
    parsed = parse_change(None, json.dumps(change), "rules@0", 0)
    check.validate(change)
    check.validate(json.loads(parsed.to_json()))


@pytest.mark.parametrize("change", NO_CHANGES, ids=lambda change: change.get("change", "rule"))
def test_what_is_no_change_of_rules_is_none_by_the_schema(change, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_change(None, json.dumps(change), "rules@0", 0)
    assert not Draft202012Validator(schema("rule-change-v1")).is_valid(change)


def test_the_published_schemas_have_every_policy():
    for path, text in published().items():
        assert path.read_text(encoding="utf-8") == text, "python -m tests.published_policies writes it"


def test_every_contract_names_its_columns_once():
    for output in columns.TOPICS:
        names = [column.name for column in TABLES[output].columns]
        assert len(set(names)) == len(names)
        assert load_contract(columns.PUBLISHED[output].contract).title

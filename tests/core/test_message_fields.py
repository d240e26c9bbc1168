"""Fields that lie in the key, in headers, or in the broker's timestamp of a message."""

import json

import pytest
import yaml
from pydantic import ValidationError

from buckets.checkpoint.identity import CheckpointIdentity
from buckets.config.engine import EngineSettings
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from tests.core.avro_events import encoded
from tests.core.pinned import Pinned
from tests.core.read_messages import TestMessage, read_messages

AT_MS = 1_700_000_000_123
EVENTS = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"card": "string", "channel": "string", "visits": "long", "vip": "boolean", "country": "string"},
    "measures": {"fee": {"scale": 2}, "amount": {"scale": 2}},
    "origins": {
        "card": "key",
        "channel": "headers.x-channel",
        "visits": "headers.visits",
        "vip": "headers.vip",
        "fee": "headers.fee",
    },
}
BROKER = {"event_id": "id", "event_time": {"broker": "create_time"}, "attributes": {"country": "string"}}


def read(tmp_path, *messages, **given):
    """Events, and reasons of dead letters by position."""
    return read_messages(tmp_path, messages, **({"events": EVENTS} | given))[:2]


def message(key=b"c1", headers=(), stamp=0, time_ms=AT_MS, **fields):
    value = {"id": "e1", "at": AT_MS, "country": "DE", "amount": "12.50"} | fields
    return TestMessage(json.dumps(value).encode(), key, headers, stamp, time_ms)


PAID = {
    "id": "e1",
    "at": AT_MS,
    "card": "c1",
    "channel": None,
    "visits": None,
    "vip": None,
    "country": "DE",
    "fee": None,
    "amount": 1250,
}


def test_key_and_headers_become_the_types_of_the_schema_to_the_digit(tmp_path):
    headers = [("x-channel", "Åland".encode()), ("visits", b"9007199254740993"), ("vip", b"true"), ("fee", b"1.5e-1")]
    typed = {"channel": "Åland", "visits": 9007199254740993, "vip": True, "fee": 15}
    assert read(tmp_path, message(headers=headers)) == ([PAID | typed], {})


def test_what_is_not_there_is_null_and_of_a_header_given_twice_the_last_counts(tmp_path):
    twice = [("x-channel", b"a"), ("other", b"\xff"), ("x-channel", b"b")]
    last_null = [("x-channel", b"a"), ("x-channel", None)]
    rows = [message(None, None), message(b"", []), message(headers=twice), message(headers=last_null)]
    assert read(tmp_path, *rows) == (
        [PAID | {"card": None}, PAID | {"card": ""}, PAID | {"channel": "b"}, PAID],
        {},
    )


def test_a_field_of_the_value_by_the_same_name_is_passed_over_whatever_it_is(tmp_path):
    assert read(tmp_path, message(card={"a": 1}, channel=[1], fee="many")) == ([PAID], {})


def test_a_key_or_header_that_does_not_fit_is_one_dead_letter_and_its_neighbours_are_read(tmp_path):
    rows = [
        message(),
        message(b"\xff"),
        message(headers=[("visits", b"many")]),
        message(headers=[("vip", b"\xfe")]),
        message(headers=[("fee", b"0.125")]),
        message(b"c2"),
    ]
    assert read(tmp_path, *rows) == (
        [PAID, PAID | {"card": "c2"}],
        {
            1: "card: is not valid UTF-8",
            2: "visits: 'many' is not a decimal number",
            3: "vip: is not valid UTF-8",
            4: "fee: 0.125 has more than 2 digits after the point",
        },
    )


def test_id_and_time_may_be_in_headers_and_nothing_in_the_value(tmp_path):
    events = {
        "event_id": "id",
        "event_time": {"field": "at", "unit": "iso8601"},
        "attributes": {"country": "string"},
        "origins": {"id": "headers.id", "at": "headers.at", "country": "key"},
    }
    headers = [("id", b"e7"), ("at", b"2023-11-14T22:13:20.123Z")]
    whole = TestMessage(b"{}", b"DE", headers)
    rows = [whole, whole._replace(value=b"{"), whole._replace(headers=headers[:1])]
    found, dead = read(tmp_path, *rows, events=events)
    assert found == [{"id": "e7", "at": AT_MS, "country": "DE"}]
    assert dead == {
        1: "broken JSON: Expecting property name enclosed in double quotes at character 2",
        2: "at: is missing or null",
    }


@pytest.mark.parametrize(
    ("kind", "stamp", "other", "reason"),
    [
        ("create_time", 0, 1, "was stamped by the broker, as log_append_time"),
        ("log_append_time", 1, 0, "was stamped when it was made, as create_time"),
    ],
)
def test_the_time_of_the_broker_is_the_event_time_where_it_is_of_the_kind_that_is_named(
    tmp_path, kind, stamp, other, reason
):
    events = BROKER | {"event_time": {"broker": kind}}
    rows = [message(stamp=stamp), message(stamp=other), message(stamp=-1), message(stamp=None, time_ms=5)]
    found, dead = read(tmp_path, *rows, events=events)
    assert found == [{"id": "e1", kind: AT_MS, "country": "DE"}, {"id": "e1", kind: 5, "country": "DE"}]
    assert dead == {1: f"{kind}: {reason}", 2: f"{kind}: has no timestamp"}


def test_key_and_headers_lie_beside_values_in_avro_too(tmp_path):
    fields = [{"name": "id", "type": "string"}, {"name": "at", "type": "long"}, {"name": "country", "type": "string"}]
    avro = {"type": "record", "name": "payment", "fields": fields}
    value = encoded(avro, {"id": "e1", "at": AT_MS, "country": "DE"})
    row = TestMessage(value, b"c1", [("x-channel", b"web")])
    source = {"format": "avro", "schema_file": "payment.avsc"}
    found, dead = read(tmp_path, row, source=source, pinned=Pinned(json.dumps(avro)))
    assert (found, dead) == ([PAID | {"channel": "web", "amount": None}], {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"origins": {"none": "key"}}, "'none' is not a field of the schema"),
        ({"origins": {"country": "value"}}, "must be key, key.PATH, headers.NAME or envelope.PATH, not 'value'"),
        ({"origins": {"country": "headers."}}, "must be key, key.PATH, headers.NAME or envelope.PATH, not 'headers.'"),
        ({"event_time": {"broker": "create_time", "unit": "s"}}, "the time of a broker is in ms, not s"),
        ({"origins": {"create_time": "key"}}, "'create_time' is the time of the broker"),
        ({"event_time": {"broker": "ingested"}}, "create_time"),
    ],
)
def test_a_schema_says_what_is_wrong_with_an_origin(changes, reason):
    with pytest.raises(ValidationError, match=reason):
        EventSchema.model_validate(BROKER | changes)


def test_a_schema_reads_what_it_writes():
    for events in (EVENTS, BROKER):
        schema = EventSchema.model_validate(events)
        assert EventSchema.model_validate(schema.model_dump(mode="json")) == schema


def test_a_source_of_files_has_no_messages_and_one_without_an_envelope_no_envelope(tmp_path):
    counting = {"rule_id": "r", "group_by": ["country"], "aggregate": {"function": "count"}}
    counting |= {"window": {"length": "1h"}, "limit": {"operator": ">", "value": "1"}}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [counting]}))
    (tmp_path / "in").mkdir()
    conf = {"schema": "schema.yaml", "rules": "rules.yaml", "checkpoint": "c", "output": {"path": "tables"}}

    def load(source, **changes):
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump(BROKER | {"event_time": "at"} | changes))
        kafka = {"bootstrap_servers": "localhost:9092"}
        (tmp_path / "conf.yaml").write_text(yaml.safe_dump(conf | {"source": source, "kafka": kafka}))
        return load_job(tmp_path / "conf.yaml")

    files, topic = {"kind": "json", "path": "in"}, {"kind": "kafka", "topic": "t"}
    with pytest.raises(BucketsError, match="takes country from key of a message, and a source of kind json has none"):
        load(files, origins={"country": "key"})
    with pytest.raises(BucketsError, match="takes create_time from create_time of a message, and a source of kind"):
        load(files, event_time={"broker": "create_time"})
    with pytest.raises(BucketsError, match=r"takes country from envelope\.op, and the source has no envelope"):
        load(topic, origins={"country": "envelope.op"})
    assert load(topic | {"envelope": "debezium"}, origins={"country": "envelope.op"}).event_schema.origins


def test_where_a_field_comes_from_stays_under_a_checkpoint():
    def basis(**changes):
        schema = EventSchema.model_validate(BROKER | changes)
        return CheckpointIdentity("kafka t", schema, EngineSettings())

    written = basis(origins={"country": "key"}).to_json()
    assert basis(origins={"country": "key"}).conflict(written) is None
    assert basis().conflict(written) == "was made with country from key of a message, not from the value"
    later = basis(origins={"country": "key"}, event_time={"broker": "log_append_time", "field": "create_time"})
    assert later.conflict(written) == (
        "was made with create_time from create_time of a message, not from log_append_time"
    )

"""`buckets kafka send`: a file's events in a topic, whatever kind of file, as the job would read them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckets.events.arrivals import DeadLetter
from buckets.kafka.sender import event_messages
from tests.kafka.kafka_job import KafkaJob
from tests.spark.payments import EVENT_SCHEMA, payments

EVENTS = list({event["id"]: event for event in payments(60)}.values())


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_file(folder: Path, kind: str) -> Path:
    """The events in a file of a kind."""
    path = folder / f"events.{kind}"
    if kind == "jsonl":
        return write_lines(path, [json.dumps(event, ensure_ascii=False) for event in EVENTS])
    if kind == "csv":
        return write_lines(path, [",".join(EVENTS[0]), *(",".join(map(str, event.values())) for event in EVENTS)])
    pq.write_table(pa.Table.from_pylist(EVENTS), path)
    return path


def as_texts(event: dict) -> dict[str, str]:
    return {name: str(value) for name, value in event.items()}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_the_events_of_a_file_are_in_the_topic_those_of_a_key_in_one_partition(broker, buckets, tmp_path, kind):
    job = KafkaJob(broker, tmp_path, partitions=3)
    ran = buckets("kafka", "send", write_file(tmp_path, kind), "--conf", job.conf, "--rate", 5000)
    assert (ran.code, ran.out) == (0, "")
    first, last = ran.err.splitlines()
    assert first.startswith(f"sending {tmp_path}/events.{kind} to topic {job.topic} at ")
    assert first.endswith(", key payer, 5,000 events a second")
    assert last.startswith(f"{len(EVENTS)} events are in topic {job.topic}, after ")
    messages = broker.read(job.topic)
    sent = [(message.partition(), message.key().decode(), json.loads(message.value())) for message in messages]
    assert sorted(as_texts(event)["id"] for _, _, event in sent) == sorted(event["id"] for event in EVENTS)
    partition_of = {key: partition for partition, key, _ in sent}
    for payer in ("ann", "bob", "zoë"):
        mine = [as_texts(event) for event in EVENTS if event["payer"] == payer]
        assert [as_texts(event) for partition, key, event in sent if key == payer] == mine
        assert {partition for partition, _, event in sent if event["payer"] == payer} == {partition_of[payer]}


def test_lines_of_json_are_sent_as_they_are_also_broken_ones(tmp_path):
    lines = ['{"id":"a", "t":1,"payer":7}', "{", "[1]", '{"id":"b","t":2,"payer":true}', '{"id":"c","t":3}']
    path = write_lines(tmp_path / "day.jsonl", ["", *lines])
    found = list(event_messages(path, EVENT_SCHEMA, "payer", on_bad=lambda rows: None))
    assert found == list(zip(["7", "", "", "true", ""], [line.encode() for line in lines], strict=True))


def test_rows_that_are_no_events_are_told_and_not_sent(tmp_path):
    path = write_lines(tmp_path / "day.csv", ["id,t,payer,kind,amount", "a,1,ann,CARD,1.5", "b,soon,ann,CARD,1", "c,2"])
    bad: list[DeadLetter] = []
    (message,) = event_messages(path, EVENT_SCHEMA, "payer", bad.extend)
    assert message == ("ann", b'{"id":"a","t":"1","payer":"ann","kind":"CARD","amount":"1.50"}')
    assert [row.position for row in bad] == [3, 4]


def test_what_does_not_fit_is_one_line(broker, buckets, tmp_path):
    job = KafkaJob(broker, tmp_path)
    path = write_file(tmp_path, "jsonl")
    wrong = [
        (("--key", "nobody"), "--key nobody: event schema 'payment' has no such field; it has id, t, "),
        (("--rate", "0"), "rate: 0 messages a second"),
    ]
    for options, expected in wrong:
        ran = buckets("kafka", "send", path, "--conf", job.conf, *options)
        assert ran.code == 1
        assert ran.err.splitlines()[-1].startswith(f"error: {expected}")
    assert broker.read(job.topic) == []

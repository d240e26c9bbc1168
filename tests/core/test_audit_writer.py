"""Rows of batches into Delta tables, each once, without Spark and without a broker."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from buckets.audit.tables import DAY, MESSAGE_COLUMNS, TRANSACTIONS, UNREADABLE, MessageReader, audit_tables
from buckets.audit.writer import AuditWriter
from buckets.delta.upkeep import FEWEST, Upkeep, join_small_files
from buckets.outputs import columns
from buckets.outputs.messages import Message
from tests.core.real_messages import real_messages
from tests.spark.job_folder import read_table

TABLES = audit_tables(columns.TOPICS)
READER = MessageReader({name: TABLES[name] for name in (*columns.TOPICS, TRANSACTIONS)})
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def sent() -> dict[str, list[Message]]:
    return real_messages()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Empty tables, without constraints."""
    for name, table in TABLES.items():
        columns = pa.schema([pa.field(column.name, column.type, column.nullable) for column in table.columns])
        DeltaTable.create(tmp_path / name, columns, partition_by=[DAY])
    return tmp_path


def writer(folder: Path) -> AuditWriter:
    """The writer of a start of the audit."""
    return AuditWriter(folder, "identity", TABLES.values())


def batch(topic: str, values: Sequence[str], first_offset: int, published_ms: int = 0) -> pa.Table:
    """Messages of a topic, read: outputs have topics of their own name."""
    columns = {
        "topic": [topic] * len(values),
        "partition": [0] * len(values),
        "offset": list(range(first_offset, first_offset + len(values))),
        "published_at": [published_ms * 1000] * len(values),
        "key": [b"k"] * len(values),
        "value": [value.encode() for value in values],
        "headers": [None] * len(values),
        "timestamp_type": [1] * len(values),
    }
    return pa.Table.from_batches(READER([pa.RecordBatch.from_pydict(columns, schema=MESSAGE_COLUMNS)]))


def offsets(folder: Path, name: str) -> list[int]:
    return sorted(row["offset"] for row in read_table(folder / name))


def test_a_batch_that_is_run_again_is_not_written_again_also_where_messages_have_no_id(folder):
    read = pa.concat_tables([batch(TRANSACTIONS, ["a", "b"], 0), batch(columns.ALERTS, ["{"], 0)])
    written = [writer(folder).write(read, 0) for _ in range(2)]
    assert [(each.messages, each.unreadable) for each in written] == [({TRANSACTIONS: 2, columns.ALERTS: 1}, 1)] * 2
    assert offsets(folder, TRANSACTIONS) == [0, 1]
    assert offsets(folder, UNREADABLE) == [0]
    same = writer(folder)
    same.write(batch(TRANSACTIONS, ["a"], 2), 1)
    same.write(batch(TRANSACTIONS, ["a"], 2), 1)
    assert offsets(folder, TRANSACTIONS) == [0, 1, 2]


@pytest.mark.parametrize("name", columns.TOPICS)
def test_of_each_id_the_first_message_is_kept_in_a_batch_and_across_batches(folder, sent, name):
    values = [message.value for message in sent[name]]
    count = len(values)
    first, second = writer(folder), writer(folder)
    assert first.write(batch(name, [*values, *values], 0), 0).repeats == count
    assert second.write(batch(name, values, 2 * count), 1).repeats == count
    assert offsets(folder, name) == list(range(count))
    assert DeltaTable(folder / name).version() == 1


def test_a_dead_letter_that_is_sent_again_on_another_day_is_known(folder, sent):
    values = [message.value for message in sent[columns.DEAD_LETTERS]]
    writer(folder).write(batch(columns.DEAD_LETTERS, values, 0), 0)
    assert writer(folder).write(batch(columns.DEAD_LETTERS, values, 9, 3 * DAY_MS), 1).repeats == len(values)
    assert offsets(folder, columns.DEAD_LETTERS) == list(range(len(values)))


def alerts(sent: dict[str, list[Message]], numbers: Sequence[int]) -> list[str]:
    """Alerts of two days, with a time and an id for each number."""
    there, values = json.loads(sent[columns.ALERTS][0].value), []
    for number in numbers:
        later_ms = number % 2 * DAY_MS + number
        times = {name: there[name] + later_ms for name in ("event_time", "window_start", "window_end")}
        values.append(json.dumps(there | times | {"alert_id": f"{number:032x}"}))
    return values


def day_files(folder: Path) -> list[str]:
    return sorted(unquote(file).split("/")[-2] for file in DeltaTable(folder / columns.ALERTS).file_uris())


@pytest.mark.slow
@pytest.mark.parametrize("is_beside", [True, False])
def test_small_files_of_a_day_become_one_and_repeats_are_still_known(folder, sent, is_beside):
    upkeep, batches = Upkeep([folder / name for name in TABLES]), 2 * FEWEST
    upkeep.prepare(folder / columns.ALERTS)
    kept = AuditWriter(folder, "identity", TABLES.values(), upkeep)
    with upkeep.running() if is_beside else nullcontext():
        for number in range(batches):
            kept.write(batch(columns.ALERTS, alerts(sent, [number]), number), number)
    with upkeep.running():
        pass
    days = day_files(folder)
    assert len(set(days)) == 2
    assert len(days) <= batches - FEWEST + 1
    assert offsets(folder, columns.ALERTS) == list(range(batches))
    rows = {(row["alert_id"], row["event_time"], row[DAY]) for row in read_table(folder / columns.ALERTS)}
    assert all(time.date() == day for _, time, day in rows)
    assert len({name for name, *_ in rows}) == batches

    again = alerts(sent, range(0, batches + 3, 3))
    assert kept.write(batch(columns.ALERTS, again, batches), batches).repeats == len(again) - 1
    assert writer(folder).write(batch(columns.ALERTS, again, batches), batches + 1).repeats == len(again)
    assert len(offsets(folder, columns.ALERTS)) == batches + 1


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_repeat_is_looked_for_in_files_of_its_time_alone(folder, sent, is_joined):
    kept, count = writer(folder), FEWEST + 2
    for number in range(0, 2 * count, 2):
        kept.write(batch(columns.ALERTS, alerts(sent, [number]), number), number)
    if is_joined:
        assert join_small_files(folder / columns.ALERTS)
    else:
        newest = max(
            (row["min.event_time"], row["path"])
            for row in pa.table(DeltaTable(folder / columns.ALERTS).get_add_actions(flatten=True)).to_pylist()
        )[1]
        for file in (folder / columns.ALERTS).rglob("*.parquet"):
            if not newest.endswith(file.name):
                file.write_bytes(b"")
    kept = writer(folder)
    assert kept.write(batch(columns.ALERTS, alerts(sent, [2 * count - 2]), 2 * count), 2 * count).repeats == 1

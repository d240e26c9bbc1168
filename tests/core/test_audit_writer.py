"""Rows of batches into Delta tables, each once, without Spark and without a broker."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from buckets.audit.folder import AuditFolder, Maintenance
from buckets.audit.rows import MESSAGE_COLUMNS, MessageReader
from buckets.audit.tables import DAY, TRANSACTIONS, UNREADABLE, audit_tables
from buckets.audit.writer import AuditWriter, TableKeeper
from buckets.config.settings import AuditSettings
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


def test_tables_are_tidied_when_it_is_time_and_the_time_is_remembered(folder, sent, tmp_path):
    for number, message in enumerate(sent[columns.ALERTS][:4]):
        writer(folder).write(batch(columns.ALERTS, [message.value], number), number)
    files = len(list((folder / columns.ALERTS).rglob("*.parquet")))
    often = {"compact_every": "1h", "vacuum_every": "1h", "keep_versions": "0ms"}
    settings = AuditSettings(path=str(folder), checkpoint=str(tmp_path / "checkpoint"), **often)
    audit_folder = AuditFolder(settings)

    def tidy() -> tuple[str, ...]:
        keeper = TableKeeper(AuditFolder(settings), settings, TABLES)
        keeper.keep_versions()
        return keeper.tidy_if_due()

    assert tidy() == ()
    long_ago = Maintenance(0, audit_folder.maintenance().vacuumed_ms)
    audit_folder.keep_maintenance(long_ago)
    assert tidy() == ("compacted",)
    assert len(list((folder / columns.ALERTS).rglob("*.parquet"))) > files
    audit_folder.keep_maintenance(Maintenance(audit_folder.maintenance().compacted_ms, 0))
    assert tidy() == ("vacuumed",)
    days = {row[DAY] for row in read_table(folder / columns.ALERTS)}
    assert len(list((folder / columns.ALERTS).rglob("*.parquet"))) == len(days)
    assert tidy() == ()
    assert offsets(folder, columns.ALERTS) == [0, 1, 2, 3]

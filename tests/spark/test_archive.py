"""The archive of real jobs: each kind of source, cut into batches, a restart with other rules in between."""

import gzip
import hashlib
import json
import os
import re
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from buckets.archive.archive import by_batch
from buckets.archive.history import History
from buckets.config.job import load_job
from buckets.delta.commits import Commits
from buckets.errors import BucketsError
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.outputs.columns import EVALUATIONS
from buckets.spark.prepared_job import Listener, prepare
from tests.spark.command import RunningCommand, run_command
from tests.spark.job_folder import FIRST_MTIME_S, JobFolder, read_table
from tests.spark.payments import RULES, SCHEMA, payments
from tests.spark.test_kill import committed_batches, freeze_when

pytestmark = pytest.mark.spark

SOURCES = {
    "json": {},
    "csv": {},
    "parquet": {"arrival": "number"},
    "delta": {"arrival": "number"},
}
FILES = 4


def write(kind: str, folder: Path, file: int, rows: list[dict]) -> None:
    """A part of a source."""
    table = pa.Table.from_pylist(rows)
    if kind == "delta":
        write_deltalake(folder, table, mode="append")
        return
    path = folder / f"{file}.{kind}"
    if kind == "json":
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    elif kind == "csv":
        pc.write_csv(table, path)
    else:
        pq.write_table(table.take(list(reversed(range(len(table))))), path)
    os.utime(path, (FIRST_MTIME_S + file, FIRST_MTIME_S + file))


INSIDE = {"id": "meta.id", "t": "meta.t", "payer": "from.who.payer", "amount": "sum.amount"}
"""Fields as they are named where they lie inside of objects."""


def moved(text: str) -> str:
    """A schema or rules whose fields lie inside of objects."""
    return re.sub(r'"(id|t|payer|amount)"', lambda match: f'"{INSIDE[match[1]]}"', text)


def in_objects(row: dict) -> dict:
    """An event whose fields lie inside of objects, with an array; no object where there is nothing to lie in it."""
    others = {name: value for name, value in row.items() if name not in INSIDE}
    payer = {"from": {"who": {"payer": row["payer"]}}} if row["payer"] is not None else {"from": None}
    number = row["number"]
    items = None if number % 5 == 0 else [{"sku": f"s{number % 3}"}, {"sku": None}]
    return others | payer | {"items": items, "meta": {"id": row["id"], "t": row["t"]}, "sum": {"amount": row["amount"]}}


@pytest.mark.parametrize(
    ("kind", "is_inside"), [*((kind, False) for kind in SOURCES), ("json", True), ("parquet", True), ("delta", True)]
)
def test_what_a_job_has_read_is_archived_batch_by_batch_and_scores_the_same(kind, is_inside, spark, tmp_path):
    rules, schema = RULES, SCHEMA
    rows = [row | {"amount": Decimal(row["amount"]), "number": number} for number, row in enumerate(payments(120))]
    ids = [row["id"] for row in rows]
    if is_inside:
        rows = [in_objects(row) for row in rows]
        rules, schema = json.loads(moved(json.dumps(RULES))), json.loads(moved(json.dumps(SCHEMA)))
        schema["arrays"] = {"items[].sku": "string"}
        with_array = {"rule_id": "array", "where": "'s1' IN items[].sku AND array_size(items[].sku) = 2"}
        rules.append(rules[0] | with_array)
    size = len(rows) // FILES
    source = tmp_path / "source"
    source.mkdir()
    for file in range(2):
        write(kind, source, file, rows[file * size : (file + 1) * size])
    settings = {"kind": kind, "path": "source", "max_files_per_trigger": 1} | SOURCES[kind]
    job = JobFolder(tmp_path, source=settings, archive={"path": "archive"})
    job.write_schema(schema)
    job.write_rules(rules)
    job.run(spark)
    first = History.open(load_job(job.conf))
    for file in range(2, FILES):
        write(kind, source, file, rows[file * size : (file + 1) * size])
    job.write_rules([rules[0] | {"limit": {"operator": ">", "value": "30"}}, *rules[1:]])
    job.run(spark)

    history = History.open(load_job(job.conf))

    assert first.archive.end() == size * 2
    assert history.archive.end() == len(rows)
    table = pa.concat_tables(history.archive.tables())
    assert table[schema["event_id"]].to_pylist() == ids
    assert table["_arrival"].to_pylist() == list(range(len(rows)))
    if is_inside:
        skus = [row["items"] and [item["sku"] for item in row["items"]] for row in rows]
        assert table["items[].sku"].to_pylist() == skus
        judged = {row["event_id"] for row in read_table(job.tables / EVALUATIONS) if row["rule_id"] == "array"}
        passing = {row["meta"]["id"] for row, of in zip(rows, skus, strict=True) if of and "s1" in of}
        assert len(judged) > 10
        assert judged <= passing
    cuts = {cut.batch_id: cut for cut in history.recorded.cuts}
    assert {cuts[batch].ruleset_version for batch in table["_batch_id"].to_pylist()} == {1, 2}
    pieces = [
        ArchivePiece(part, history.recorded.rule_set(cuts[batch].ruleset_version), history.recorded.terms(batch))
        for batch, part in by_batch(history.archive.tables())
    ]
    names = ["event_id", "rule_id", "rule_version", "key", "value", "warm", "fired"]
    again = [scored.table(EVALUATIONS) for scored in score_pieces(pieces, "evaluations")]
    found = [row for part in again for row in part.select(names).to_pylist()]
    recorded = [{name: row[name] for name in names} for row in read_table(job.tables / EVALUATIONS)]
    assert sorted(map(str, found)) == sorted(map(str, recorded))
    assert len({batch["batch_id"] for batch in read_table(job.tables / "batches")}) >= FILES


def test_a_file_that_cannot_be_read_is_named_and_once_taken_out_is_in_no_archive(spark, tmp_path):
    job = JobFolder(tmp_path, archive={"path": "archive"})
    job.add_events(payments(40), files=2)
    broken = job.source / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b"".join(b'{"id": "x%d"}\n' % number for number in range(5000)))[:900])
    (job.source / "empty.jsonl").touch()
    with pytest.raises(BucketsError, match=re.escape(f"events {broken}: cannot be read (java.io.EOFException")):
        job.run(spark)
    kept = broken.read_bytes()
    broken.unlink()
    prepared = prepare(load_job(job.conf))
    said: list[str] = []
    with prepared.file_watch(said.append):
        prepared.query(spark, Listener(lambda report: None)).run(None)
    assert said == [f"events {broken}: is not read: it was listed for a batch that has not ended, and is gone"]
    history = History.open(load_job(job.conf))
    assert history.archive.end() == 40
    broken.write_bytes(kept)  # put back: it has never been read
    job.add_events(payments(60)[40:], files=1, first=2)
    job.run(spark)
    assert History.open(load_job(job.conf)).archive.end() == 60


def with_all_kinds(root: Path) -> JobFolder:
    """A job over files with events, repeats and dead letters, one that is empty, and one without a single event."""
    job = JobFolder(root, archive={"path": "archive"})
    events = payments(60)
    for number in range(3):
        lines = [*map(json.dumps, events[20 * number : 20 * number + 20]), "no event", json.dumps(events[0])]
        job.add_file(number, lines)
    job.add_file(3, [])
    job.add_file(4, ["{", "[]"])
    return job


def archived_by(job: JobFolder) -> list[tuple]:
    """The archive of a job, without the folders of its files."""
    rows = pa.concat_tables(History.open(load_job(job.conf)).archive.tables()).to_pylist()
    names = ("_arrival", "_batch_id", "id", "_position", "_fault", "_raw", "amount")
    return [(Path(row["_source"]).name, *(row[name] for name in names)) for row in rows]


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory) -> list[tuple]:
    """The archive of a job that nothing disturbed."""
    job = with_all_kinds(tmp_path_factory.mktemp("undisturbed"))
    job.run(spark)
    return archived_by(job)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_batch_that_died_before_or_after_its_commit_is_in_the_archive_once(
    spark, undisturbed, tmp_path, monkeypatch, is_committed
):
    job = with_all_kinds(tmp_path)
    put, put_so_far = Commits.put, count()

    def die(self: Commits, version: int, actions: list) -> bool:
        if "arrivals" in str(self._log) and next(put_so_far) == 1:
            if is_committed:
                put(self, version, actions)
            message = "killed"
            raise MemoryError(message)
        return put(self, version, actions)

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "put", die)
        with pytest.raises(BucketsError, match="killed"):
            job.run(spark)
    job.run(spark)
    assert [row[1] for row in undisturbed] == list(range(3 * 22 + 2))
    assert archived_by(job) == undisturbed


def test_killed_with_a_batch_that_is_archived_and_not_done_all_rows_are_there_once(undisturbed, tmp_path):
    job = with_all_kinds(tmp_path)

    def is_archived_but_not_done(job: JobFolder) -> bool:
        archived = {int(path.stem) for path in (job.root / "archive" / "arrivals" / "_delta_log").glob("*.json")}
        return len(archived) - 2 > len(committed_batches(job)) > 0  # The first commits make the table

    with RunningCommand("run", job.conf, log=tmp_path / "killed.log") as command:
        freeze_when(command, job, lambda job: not command.is_running or is_archived_but_not_done(job))
        command.kill_all()
    assert run_command("run", job.conf).returncode == 0
    assert archived_by(job) == undisturbed


def test_an_archive_begins_with_the_batch_after_it_was_configured_and_has_no_hole(spark, buckets, tmp_path, as_worded):
    job, events = JobFolder(tmp_path), payments(100)
    job.add_events(events[:40], files=2)
    job.run(spark)
    job.configure_also(archive={"path": "archive"})
    assert as_worded(buckets("archive", job.conf).err)
    job.add_events(events[40:80], files=2, first=2)
    job.run(spark)
    assert [row[3] for row in archived_by(job)] == [event["id"] for event in events[40:80]]
    assert as_worded(buckets("replay", job.conf).err)
    late = [row for row in job.rows("alerts") if row["rule_id"] == "payer-sum"][-1]
    explained = buckets("explain", job.conf, late["alert_id"])
    assert "events of batches before 2 are not in the archive" in explained.out, explained.err
    assert buckets("backtest", tmp_path / "rules.yaml", "--conf", job.conf).code == 0
    assert buckets("archive", job.conf).out.startswith("40 rows are in ")

    job.configure_also(archive=None)
    job.add_events(events[80:90], files=1, first=4)
    job.run(spark)
    job.configure_also(archive={"path": "archive"})
    with pytest.raises(BucketsError, check=as_worded):
        job.run(spark)
    assert buckets("explain", job.conf, late["alert_id"]).code == 0
    job.configure_also(archive={"path": "archive-2"})
    job.add_events(events[90:], files=1, first=5)
    job.run(spark)
    assert [row[3] for row in archived_by(job)] == [event["id"] for event in events[90:]]


def test_batches_of_many_rows_come_through_files_in_the_order_of_arrival(spark, tmp_path):
    """Rows of several tasks and pieces, more than travel as bytes; and what is gathered beside the checkpoint goes."""
    source = {"kind": "json", "path": "source", "max_files_per_trigger": 3}
    job = JobFolder(tmp_path, source=source, archive={"path": "archive"}, output={"path": "tables"})
    job.write_rules([RULES[0] | {"limit": {"operator": ">", "value": "1000000"}}])
    ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(60_000)]
    event = payments(1)[0]
    for number, first in enumerate(range(0, len(ids), 20_000)):
        lines = [
            json.dumps(event | {"id": each, "t": at}) for at, each in enumerate(ids[first : first + 20_000], first)
        ]
        job.add_file(number, lines)
    job.run(spark)
    archive = History.open(load_job(job.conf)).archive
    found = pa.concat_tables(archive.tables(columns=["id"]))
    assert found["id"].to_pylist() == ids
    assert found["_arrival"].to_pylist() == list(range(len(ids)))
    assert not list((job.checkpoint / "buckets").glob("spilled/*"))

"""The archive of real jobs: each kind of source, cut into batches, a restart with other rules in between."""

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from buckets.archive.archive import by_batch
from buckets.archive.archiving import History
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.outputs.columns import EVALUATIONS
from buckets.spark.prepared_job import Listener, prepare
from tests.spark.job_folder import FIRST_MTIME_S, JobFolder, read_table
from tests.spark.payments import RULES, SCHEMA, payments

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

    assert first.archive.end() == history.archive.end() == len(rows)
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

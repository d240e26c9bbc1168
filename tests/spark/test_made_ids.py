"""A job over files without ids, as a bank writes them: the same ids in its tables, its archive, a replay and Python."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from buckets.archive.delta_source import open_events
from buckets.archive.history import History
from buckets.cli.commands import exit_code
from buckets.config.job import load_job
from buckets.events.arrivals import parse
from buckets.events.schema import EventSchema
from tests.spark.job_folder import JobFolder
from tests.spark.payments import SCHEMA, payments

pytestmark = pytest.mark.spark

HASH = {"hash": ["t", "payer", "kind", "amount"]}
PAYMENTS = [{name: value for name, value in row.items() if name != "id"} for row in payments(60)]
HALF = len(PAYMENTS) // 2


def in_german(row: dict) -> str:
    amount = f"{float(row['amount']) * 100:,.2f}".translate({ord(","): ".", ord("."): ","})
    return ";".join([f"{row['t']}", row["payer"] or "", row["kind"], amount, "", ""])


def write(kind: str, job: JobFolder, number: int, rows: list[dict]) -> None:
    """A file of a source in a folder of its own, or a commit of a table."""
    table = pa.Table.from_pylist([row | {"arrival": HALF * number + at} for at, row in enumerate(rows)])
    path = job.source / f"day={number}" / f"part.{kind}"
    if kind == "delta":
        write_deltalake(job.source, table, mode="append")
        return
    path.parent.mkdir()
    if kind == "csv":
        path.write_bytes("".join(f"{in_german(row)}\r\n" for row in rows).encode("cp1252"))
    elif kind == "json":
        path.write_text("".join(json.dumps(row | {"event_id": ["theirs"]}) + "\n" for row in rows))
    else:
        pq.write_table(table, path)


def ids_of(path: Path, schema: EventSchema, arrival: str | None = None) -> list[str]:
    found = [parse(batch, schema, frozenset())[0] for batch in open_events(path, schema, arrival, print)]
    return [event_id for events in found for event_id in events.event_id.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "made"), [("csv", {"row": True}), ("json", HASH), ("parquet", {"row": True}), ("delta", HASH)]
)
def test_ids_are_the_same_in_tables_archive_replay_and_python(kind, made, spark, tmp_path, monkeypatch, capsys):
    files = {"kind": kind, "path": "source", "max_files_per_trigger": 1}
    source = files | ({"arrival": "arrival"} if kind == "delta" else {"subfolders": True})
    job = JobFolder(tmp_path, source=source, archive={"path": "archive"})
    written = SCHEMA | {"event_id": made}
    if kind == "csv":
        names = ["t", "payer", "kind", "amount", "", ""]
        csv = {"delimiter": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252", "header": names}
        written |= {"csv": csv}
    job.write_schema(written)
    for number, rows in enumerate((PAYMENTS[:HALF], PAYMENTS[HALF:])):
        write(kind, job, number, rows)
        job.run(spark)

    table = pa.concat_tables(History.open(load_job(job.conf)).archive.tables())
    archived = table["event_id"].to_pylist()
    assert len(archived) == len(PAYMENTS)
    assert table["_fault"].null_count == len(PAYMENTS)
    schema = EventSchema.model_validate(written)
    if kind == "delta":
        assert archived == ids_of(job.source, schema, "arrival")
    else:
        of_files = [ids_of(job.source / f"day={number}", schema) for number in range(2)]
        begins = [f"day={number}/" if "row" in made else "" for number in range(2)]
        assert archived == [begin + event_id for begin, ids in zip(begins, of_files, strict=True) for event_id in ids]
    scored = {row["event_id"] for row in job.rows("evaluations")}
    assert scored <= set(archived)
    assert len(scored) > HALF
    repeated = len(PAYMENTS) - len({tuple(row.values()) for row in PAYMENTS})
    assert repeated > 0
    duplicates = {row["event_id"] for row in job.rows("duplicates")}
    assert len(duplicates) > 0 if made is HASH else not duplicates

    def command(*arguments: str) -> dict:
        monkeypatch.setattr(sys, "argv", ["buckets", *arguments, "--json"])
        capsys.readouterr()
        assert exit_code() == 0
        return json.loads(capsys.readouterr().out)

    assert command("replay", str(job.conf), "--evaluations")["equal"]
    alert = job.rows("alerts")[0]
    explained = command("explain", str(job.conf), alert["alert_id"])
    assert explained["event"]["event_id"] == alert["event_id"]

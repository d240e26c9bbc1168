"""The archive: what arrived comes back as it was, with the batch that scored it, and scores the same again."""

import pyarrow as pa
import pytest

from buckets.archive.archive import Archive, by_batch
from buckets.archive.arrived_rows import arrivals_of
from buckets.archive.history import RecordedBatches
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.errors import BucketsError
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.outputs.columns import ALERTS
from tests.core.archived_job import NO_RULES, ArchivedJob, archive_writer, archived, arrived_events
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import arrivals

ROWS = [
    {"id": f"e{index}", "at": 1_700_000_000_000 + index * 60_000, "payer": f"p{index % 3}", "amount": f"{index}.25"}
    for index in range(30)
]


def test_archived_arrivals_score_as_they_did(tmp_path):
    job = ArchivedJob(tmp_path, SCHEMA, shards=3, allowed_lateness="1h")
    job.take([rule(limit={"operator": ">", "value": "10"})])
    job.batch(ROWS[:10])
    job.take([rule(limit={"operator": ">", "value": "20"})])
    job.batch([])
    job.batch([*ROWS[10:], ROWS[4], {"id": "late", "at": ROWS[2]["at"] + 1, "payer": "p1", "amount": "-3"}])

    cuts, recorded = {cut.batch_id: cut for cut in job.recorded.cuts}, job.recorded
    assert [cut.ruleset_version for cut in cuts.values()] == [1, 2, 2]
    pieces = [
        ArchivePiece(rows, recorded.rule_set(cuts[number].ruleset_version), recorded.terms(number))
        for number, rows in by_batch(job.archive.tables())
    ]
    again = [row for scored in score_pieces(pieces, "evaluations") for row in scored.table(ALERTS).to_pylist()]
    found = [(row["alert_id"], row["value"], row["warm"], row["position"]) for row in again]
    expected = [(row["alert_id"], row["value"], row["warm"], row["position"]) for row in job.pipeline.output(ALERTS)]
    assert sorted(found) == sorted(expected)
    assert expected


def test_every_digit_every_null_and_what_is_no_event_are_kept():
    rows = [
        {
            "id": "a",
            "at": -1,
            "payer": "p\u00e9",
            "account": -(2**63),
            "vip": "true",
            "amount": "-92233720368547758.08",
        },
        {"id": "b", "at": 0, "amount": "92233720368547758.07", "fee": str(2**63 - 1)},
        {"id": "c", "at": "never", "raw": "the text of c"},
        {"id": "d", "at": 5},
    ]
    schema = SCHEMA.model_validate(SCHEMA.model_dump() | {"event_time": {"field": "at", "earliest": "1900-01-01"}})
    table = archived(arrivals(rows, schema), schema, 7)
    assert table["_fault"].to_pylist() == [None, None, "at: 'never' is not a decimal number", None]
    assert table["_raw"].to_pylist() == [None, None, "the text of c", None]
    assert set(table["_batch_id"].to_pylist()) == {7}
    (back,) = arrivals_of(table, schema)
    assert archived(back, schema, 7).equals(table)
    assert table["amount"].cast(pa.string()).to_pylist()[:2] == ["-92233720368547758.08", "92233720368547758.07"]


def test_rows_are_appended_once(tmp_path):
    archive, rows = Archive(tmp_path / "archive"), arrived_events(ROWS, SCHEMA)
    # A job that was killed after a commit opens the table anew, one that goes on does not.
    for batches in ((0,), (0, 1, 2, 2), (2, 1)):
        writer = archive_writer(archive.folder)
        for batch_id in batches:
            writer.write(batch_id, SCHEMA, NO_RULES, [] if batch_id == 1 else rows)
    assert archive.end() == 60
    assert [number for number, _ in by_batch(archive.tables())] == [0, 2]
    numbers = [number for table in archive.tables(10, 45) for number in table["_arrival"].to_pylist()]
    assert numbers == list(range(10, 45))


def test_an_archive_that_begins_later_says_so_and_records_begin_there_too(tmp_path):
    archive = Archive(tmp_path / "later")
    for batch_id in (3, 4):
        archive_writer(archive.folder).write(batch_id, SCHEMA, NO_RULES, [])
    job = ArchivedJob(tmp_path, SCHEMA, shards=2)
    job.take([rule()])
    for number in range(5):
        job.batch(ROWS[number : number + 1])
    assert (archive.since(), job.archive.since()) == (3, None)
    later = job.recorded.since(archive.since())
    assert ([cut.batch_id for cut in later.cuts], later.before) == ([3, 4], job.recorded.cuts[2])
    for first in (None, 0):
        assert (len(job.recorded.since(first).cuts), job.recorded.since(first).before) == (5, None)


def test_cuts_of_a_batch_that_ran_twice_or_half_are_there_once(tmp_path, monkeypatch):
    monkeypatch.setattr("buckets.checkpoint.batch_ends._TOGETHER", 1)
    checkpoint = Checkpoint(tmp_path)
    write_cut(checkpoint, 0, 1)
    (file,) = (tmp_path / "buckets" / "cuts").glob("*")
    with file.open("ab") as written:
        written.write(b'\n{"batch_id": 0, "rules')
    write_cut(checkpoint, 0, 2, {"bad": 3})
    write_cut(checkpoint, 1, 2)
    found = checkpoint.cuts.read()
    assert [(cut.batch_id, cut.ruleset_version) for cut in found] == [(0, 2), (1, 2)]
    assert found[0].lists == {"bad": 3}


def write_cut(checkpoint: Checkpoint, batch_id: int, version: int, lists=None) -> None:
    checkpoint.batches.keep(batch_id, BatchRecord(version, (), done=True, lists=lists or {}))
    checkpoint.cuts.keep(batch_id)


def test_every_batch_has_a_line_once_its_record_is_forgotten(tmp_path, monkeypatch):
    """Over the end of a file, with stops anywhere: the lines alone say what all records together said."""
    monkeypatch.setattr("buckets.checkpoint.batch_ends._PER_FILE", 300)
    first, last = 0, 560
    for batch_id in range(first, last + 1):
        if batch_id in (first, 51, 99, 100, 299, 300, 357, 499):
            checkpoint = Checkpoint(tmp_path)
        write_cut(checkpoint, batch_id, 1 + batch_id // 7)
    files = sorted((tmp_path / "buckets" / "cuts").iterdir())
    lines = [sum(b"batch_id" in line for line in file.read_bytes().splitlines()) for file in files]
    assert lines == [300, 200]
    assert [(cut.batch_id, cut.ruleset_version) for cut in checkpoint.cuts.read()] == [
        (batch_id, 1 + batch_id // 7) for batch_id in range(first, last + 1)
    ]


def test_a_checkpoint_without_cuts_says_so(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        RecordedBatches(tmp_path)

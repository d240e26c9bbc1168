"""What a checkpoint was made for: another job, or something else in its folder, is refused."""

import pytest

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import FORMAT, is_same_source
from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.record_files import seal_json
from buckets.errors import BucketsError
from buckets.timeline.codec import CODEC_VERSION
from tests.core.checkpoints import (
    basis,
    change_job,
    files,
    schema_with,
    with_attributes,
    with_measures,
    with_time,
    written_in,
)
from tests.core.examples import SCHEMA


def test_a_checkpoint_keeps_its_identity_and_another_has_another(checkpoint, tmp_path):
    identity = checkpoint.job.open(basis())
    assert JobRecord(checkpoint.path).open(basis()) == identity
    assert JobRecord(tmp_path / "other").open(basis()) != identity


@pytest.mark.parametrize("now", ["json /old/../events", "json /events/", "json /./events"])
def test_a_checkpoint_goes_on_with_its_source_however_the_path_is_written(checkpoint, now):
    identity = checkpoint.job.open(basis())
    assert checkpoint.job.open(basis(now)) == identity
    assert checkpoint.job.open(basis()) == identity


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("json /events", "json /events/.."),
        ("json /events/..", "json /events"),
        ("json /events", "csv /events"),
        ("kafka events", "json events"),
        ("kafka a//b", "kafka a/b"),
        ("json /my events", "json /my other"),
    ],
)
def test_another_source_is_another_one(before, now):
    assert not is_same_source(before, now)
    assert is_same_source(before, before)
    assert is_same_source(now, now)


def test_looking_at_a_checkpoint_writes_nothing(checkpoint):
    assert checkpoint.versions.latest_rule_set() is None
    assert checkpoint.batches.record(0) is None
    assert not checkpoint.path.exists()


def test_a_checkpoint_into_which_an_import_was_broken_off_is_refused_until_it_is_removed(checkpoint, as_worded):
    checkpoint.imports.begin()
    for refused in (checkpoint.job.open, checkpoint.job.identity):
        with pytest.raises(BucketsError, check=as_worded):
            refused(basis())
    checkpoint.job.begin_imported(basis(), "me", "second", 2)
    assert checkpoint.job.open(basis()) == "me"


def test_shards_are_spread_over_the_partitions_of_the_first_start_for_good(checkpoint):
    identity = checkpoint.job.open(basis())
    assert [checkpoint.job.spread(partitions) for partitions in (3, 5)] == [3, 3]
    assert checkpoint.job.open(basis()) == identity
    assert checkpoint.job.partitions == 3


@pytest.mark.parametrize(
    "other",
    [
        {"shards": 8},
        {"allowed_lateness": "2h"},
        {"source": "csv /events"},
        {"schema": schema_with(event_id="uuid")},
        {"schema": schema_with(event_time="t")},
        {"schema": with_time(unit="s")},
        {"schema": with_time(unit="s", latest="2027-01-01T00:00:00Z")},
        {"schema": with_attributes(payer="long")},
        {"schema": with_attributes(payer=None)},
        {"schema": schema_with(attributes={}, measures={name: {"scale": 2} for name in SCHEMA.attributes})},
        {"schema": with_measures(amount={"scale": 3})},
        {"schema": with_measures(amount=None)},
        {"schema": schema_with(event_id={"hash": ["at", "payer"], "field": "id"})},
        {"schema": schema_with(event_id={"row": True, "field": "id"})},
        {"schema": schema_with(records="Records[]")},
    ],
)
def test_a_checkpoint_of_another_job_is_refused_in_one_line(checkpoint, other, as_worded):
    checkpoint.job.open(basis())
    before = (checkpoint.path / "buckets" / "job.json").read_bytes()
    with pytest.raises(BucketsError, check=as_worded) as error:
        JobRecord(checkpoint.path).open(basis(**other))
    assert "\n" not in error.value.message
    assert (checkpoint.path / "buckets" / "job.json").read_bytes() == before


def test_a_checkpoint_of_another_format_is_refused(checkpoint, as_worded):
    checkpoint.job.open(basis())
    change_job(checkpoint, format=FORMAT + 1)
    for read in (lambda: checkpoint.job.open(basis()), checkpoint.job.event_schema):
        with pytest.raises(BucketsError, check=as_worded):
            read()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"\xff",
        *(
            seal_json(record, place="buckets/job.json")
            for record in ({}, {"format": "1"}, {"format": 1}, {"format": 1, "codec": 1, "id": "a"})
        ),
    ],
    ids=["empty", "half", "no text", "nothing", "format as text", "no codec", "no shards"],
)
def test_a_damaged_record_is_one_line(checkpoint, damaged, as_worded):
    checkpoint.job.open(basis())
    (checkpoint.path / "buckets" / "job.json").write_bytes(damaged)
    for read in (lambda: checkpoint.job.open(basis()), checkpoint.job.event_schema):
        with pytest.raises(BucketsError, check=as_worded) as error:
            read()
        assert "\n" not in error.value.message


def written_job(checkpoint: Checkpoint) -> dict:
    return written_in(checkpoint.path / "buckets" / "job.json")


def test_a_checkpoint_of_a_later_codec_is_refused(checkpoint, as_worded):
    checkpoint.job.open(basis())
    change_job(checkpoint, codec=CODEC_VERSION + 1)
    with pytest.raises(BucketsError, check=as_worded):
        checkpoint.job.open(basis())
    assert written_job(checkpoint)["codec"] == CODEC_VERSION + 1


def test_the_event_schema_is_that_of_the_last_start(checkpoint):
    checkpoint.job.open(basis())
    assert checkpoint.job.event_schema() == SCHEMA
    wider = schema_with(attributes={**SCHEMA.attributes, "country": "string"})
    checkpoint.job.open(basis(schema=wider))
    assert checkpoint.job.event_schema() == wider


def test_what_is_no_checkpoint_has_no_event_schema(checkpoint, as_worded):
    for _ in range(2):
        with pytest.raises(BucketsError, check=as_worded):
            checkpoint.job.event_schema()
        checkpoint.path.mkdir(exist_ok=True)


def test_a_field_that_was_added_may_not_go_again(checkpoint, as_worded):
    checkpoint.job.open(basis())
    checkpoint.job.open(basis(schema=schema_with(attributes={**SCHEMA.attributes, "country": "string"})))
    with pytest.raises(BucketsError, check=as_worded):
        checkpoint.job.open(basis())


def test_a_folder_with_something_else_in_it_is_no_checkpoint(checkpoint, as_worded):
    checkpoint.path.mkdir()
    (checkpoint.path / "letter.txt").write_text("dear")
    with pytest.raises(BucketsError, check=as_worded):
        checkpoint.job.open(basis())
    assert files(checkpoint) == {"letter.txt"}


def test_a_file_is_no_checkpoint(checkpoint, as_worded):
    checkpoint.path.write_text("dear")
    with pytest.raises(BucketsError, check=as_worded):
        checkpoint.job.open(basis())


def test_an_empty_folder_may_become_a_checkpoint(checkpoint):
    checkpoint.path.mkdir()
    assert checkpoint.job.open(basis()) == checkpoint.job.open(basis())


def test_a_start_that_died_while_it_wrote_its_first_file_can_be_repeated(checkpoint):
    folder = checkpoint.path / "buckets"
    folder.mkdir(parents=True)
    (folder / ".job.json.partial").write_text('{"format": 1, "sou')
    checkpoint.job.open(basis())
    assert files(checkpoint) == {"buckets/job.json"}

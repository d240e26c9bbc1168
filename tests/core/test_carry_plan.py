"""What an import does and refuses: settings, names, manifests, Spark's notes on the source, who owns an output."""

import json

import pytest

from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.record_files import OwnedFolder
from buckets.checkpoint.source_offsets import spark_folder
from buckets.errors import BucketsError
from buckets.rules.rule_set import first_rule_set
from buckets.state_transfer.export_manifest import (
    FILE,
    ExportManifest,
    TableCheck,
    carried_files,
    last_batch,
    number_state,
    plan_import,
)
from tests.core.checkpoints import basis, schema_with, with_attributes, with_measures
from tests.core.examples import SCHEMA, rule, until, with_new_names

RULES = first_rule_set([rule(), rule("kinds", "fee", group_by=["kind", "payer"], where="fee > 1")])


def manifest(**engine) -> ExportManifest:
    job = basis(**engine).to_json() | {"id": "me"}
    tables = {name: TableCheck(rows=1, checksum=2) for name in ("keys", "pages", "shards", "records")}
    return ExportManifest(
        release="0", made_ms=0, checkpoint="/old", job=job, batch_id=7, ruleset_version=RULES.version, tables=tables
    )


def plan(now, arrived_ms=None, **engine):
    return plan_import(manifest(**engine), RULES, until(arrived_ms), now)


def renamed(**names):
    return with_new_names(SCHEMA, names)


@pytest.mark.parametrize(
    "now",
    [
        basis("csv /events"),
        basis(subfolders=True),
        basis(schema=schema_with(event_id="uuid")),
        basis(schema=with_attributes(vip="string")),
        basis(schema=with_measures(fee={"scale": 3})),
        basis(schema=with_attributes(payer=None)),
        basis(schema=schema_with(attributes={"who": "string"}, aliases={"who": ["payer", "kind"]})),
    ],
    ids=["source", "subfolders", "id", "type", "scale", "rule's field", "two are one"],
)
def test_what_state_cannot_be_carried_into_is_said_in_one_line(now, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as error:
        plan(now)
    assert "\n" not in error.value.message


def test_more_shards_leave_the_rules_as_they_are_and_are_said(as_worded):
    found = plan(basis(shards=64), shards=16)
    assert found.rule_set is RULES
    assert (found.carried.shards_before, found.carried.shards) == (16, 64)
    (said,) = found.differences
    assert as_worded(said)


def test_nothing_is_different_where_nothing_is():
    assert plan(basis()).differences == ()


@pytest.mark.parametrize("source", ["json /old/../events", "json /events/"])
def test_a_source_is_the_same_however_its_path_is_written(source):
    assert plan(basis(source)).differences == ()


def test_a_greater_lateness_and_other_names_make_a_version_of_the_rule_set_and_none_of_a_rule():
    now = basis(schema=renamed(payer="who"), allowed_lateness="5h")
    found = plan(now, arrived_ms=10**9)
    assert found.rule_set.version == RULES.version + 1
    assert [each.version for each in found.rule_set.rules] == [1, 1]
    assert [said.split(":")[0].split(";")[0] for said in found.differences] == [
        "engine.allowed_lateness",
        "payer is who from now on",
        "the rule set gets version 2",
    ]


def test_fields_that_come_and_go_are_said_where_no_rule_needs_them():
    found = plan(basis(schema=with_attributes(vip=None, country="string")))
    assert found.differences == (
        "the event schema has a field more, country as a string attribute",
        "the event schema does not declare vip any more; no rule in force names it",
    )


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    manifest().write(tmp_path)
    assert ExportManifest.read(tmp_path) == manifest()


@pytest.mark.parametrize(
    "change",
    [
        lambda written: None,
        lambda written: written | {"format": 99},
        lambda written: written | {"job": written["job"] | {"format": 99}},
        lambda written: written | {"job": written["job"] | {"codec": 99}},
        lambda written: written | {"tables": 5},
        lambda written: {},
    ],
    ids=["half", "newer export", "newer checkpoint", "newer codec", "damaged", "empty"],
)
def test_what_is_no_whole_export_that_this_release_reads_is_refused(tmp_path, change, as_worded):
    manifest().write(tmp_path)
    file = tmp_path / FILE
    now = change(json.loads(file.read_text()))
    file.unlink()
    if now is not None:
        file.write_text(json.dumps(now))
    with pytest.raises(BucketsError, check=as_worded) as error:
        ExportManifest.read(tmp_path)
    assert "\n" not in error.value.message


def committed(checkpoint, batch_id: int) -> None:
    for folder in ("commits", "offsets"):
        (spark_folder(checkpoint.path) / folder).mkdir(parents=True, exist_ok=True)
        (spark_folder(checkpoint.path) / folder / str(batch_id)).write_text("v1\n{}\n{}")


def test_the_state_is_that_after_the_last_batch_that_has_ended(checkpoint, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        last_batch(checkpoint.path)
    for batch_id in (8, 9, 10):
        committed(checkpoint, batch_id)
        checkpoint.batches.keep(batch_id, BatchRecord(1, (), done=True))
    assert last_batch(checkpoint.path) == 10
    checkpoint.batches.keep(11, BatchRecord(1, (), done=False))
    with pytest.raises(BucketsError, check=as_worded):
        last_batch(checkpoint.path)


def test_records_and_the_notes_of_the_source_are_carried_over_and_what_is_of_one_checkpoint_is_not(checkpoint):
    checkpoint.job.open(basis())
    for batch_id in (8, 9, 10):
        committed(checkpoint, batch_id)
        checkpoint.batches.keep(batch_id, BatchRecord(1, (), done=True))
    notes = spark_folder(checkpoint.path) / "sources" / "0"
    notes.mkdir(parents=True)
    for name in ("3", "9.compact", ".3.crc"):
        (notes / name).write_text("v1")
    assert {str(file) for file in carried_files(checkpoint.path, 10)} == {
        *(f"buckets/batches/{batch_id:09d}.json" for batch_id in (8, 9, 10)),
        "spark/sources/0/3",
        "spark/sources/0/9.compact",
        "spark/offsets/9",
        "spark/offsets/10",
        "spark/commits/10",
    }


@pytest.mark.parametrize("batch_id", [0, 1, 41])
def test_state_as_after_a_batch_0_becomes_that_after_the_last_batch(tmp_path, batch_id):
    for partition in range(3):
        folder = tmp_path / "state" / "0" / str(partition) / "shards"
        folder.mkdir(parents=True)
        for name in ("1.zip", ".1.zip.crc"):
            (folder / name).write_text("state")
    number_state(tmp_path, batch_id)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {f"state/0/{partition}/shards/{batch_id + 1}.zip" for partition in range(3)}


def test_state_without_a_snapshot_is_refused(tmp_path, as_worded):
    (tmp_path / "state" / "0" / "0" / "shards").mkdir(parents=True)
    with pytest.raises(BucketsError, check=as_worded):
        number_state(tmp_path, 0)


def test_an_output_folder_goes_on_with_the_checkpoint_into_which_state_was_imported_last(
    checkpoint, tmp_path, as_worded
):
    identity = checkpoint.job.open(basis())
    output = tmp_path / "tables"
    OwnedFolder(output, "output.path", checkpoint.job.life).take(identity)
    assert OwnedFolder(output, "output.path", checkpoint.job.life).is_of(identity)
    imported = JobRecord(tmp_path / "new")
    imported.begin_imported(basis(shards=64), identity, "second", 2)
    OwnedFolder(output, "output.path", "second").hand_over(identity)
    assert OwnedFolder(output, "output.path", imported.life).is_of(imported.open(basis(shards=64)))
    assert imported.life == "second"
    with pytest.raises(BucketsError, check=as_worded):
        OwnedFolder(output, "output.path", checkpoint.job.life).is_of(identity)

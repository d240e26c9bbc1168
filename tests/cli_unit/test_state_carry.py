"""`buckets state export` and `import`: what is refused before Spark starts, in one line."""

import shutil

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.lock import Lock
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.state_transfer.export_manifest import (
    CHECKED,
    KEYS,
    PAGES,
    RECORDS,
    ExportManifest,
    TableCheck,
    check_contents,
    check_row_counts,
    check_table,
)
from tests.core.checkpoints import ONE, basis, book_of, ran
from tests.core.examples import SCHEMA, written_rule


@pytest.fixture
def conf(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json")))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [written_rule()]}))
    settings = {"source": {"kind": "json", "path": "source"}, "schema": "schema.yaml", "rules": "rules.yaml"}
    file = tmp_path / "conf.yaml"
    file.write_text(yaml.safe_dump(settings | {"checkpoint": "checkpoint", "output": {"path": "tables"}}))
    return file


@pytest.fixture
def export(tmp_path, conf):
    """An export of a job of the same configuration, with one key."""
    job, folder, checkpoint = load_job(conf), tmp_path / "export", Checkpoint(tmp_path / "old")
    ran(book_of(checkpoint, ONE), 0)
    files = [file for file in checkpoint.path.rglob("*") if file.is_file()]
    rows = {"path": [str(file.relative_to(checkpoint.path)) for file in files]}
    tables = {RECORDS: rows | {"content": [file.read_bytes() for file in files]}}
    for name, columns in CHECKED.items():
        blank = {column: [0 if column == "shard" else b"x"] for column in columns}
        write_deltalake(folder / name, pa.table(tables.get(name, blank)))
    source = job.settings.source
    made_from = CheckpointIdentity(source.name, job.event_schema, job.settings.engine).to_json() | {"id": "me"}
    checks = {name: check_table(folder, name) for name in CHECKED}
    manifest = ExportManifest(
        release="0", made_ms=0, checkpoint="/old", job=made_from, batch_id=0, ruleset_version=1, tables=checks
    )
    manifest.write(folder)
    return folder


def one_line(ran) -> str:
    (line,) = ran.err.splitlines()
    assert ran.code == 1
    assert ran.out == ""
    return line


def test_a_folder_that_is_no_export_or_half_of_one_is_refused(buckets, conf, tmp_path, as_worded):
    (tmp_path / "export" / "keys").mkdir(parents=True)
    said = one_line(buckets("state", "import", tmp_path / "export", "--conf", conf))
    assert as_worded(said)


@pytest.mark.parametrize("name", ["nowhere", "conf.yaml"])
def test_what_is_no_folder_is_refused(buckets, conf, tmp_path, name, as_worded):
    said = one_line(buckets("state", "import", tmp_path / name, "--conf", conf))
    assert as_worded(said)


def test_what_would_be_carried_is_said_and_nothing_is_written(buckets, conf, export, tmp_path):
    said = buckets("state", "import", export, "--conf", conf, "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert "would get the state of 1 keys, after batch 0" in said.out
    assert not (tmp_path / "checkpoint").exists()


def test_what_is_left_of_an_import_that_was_broken_off_is_told(buckets, conf, export, tmp_path, as_worded):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    with Lock(checkpoint.path):
        checkpoint.imports.begin()
        assert as_worded(one_line(buckets("state", "import", export, "--conf", conf, "--dry-run")))
    for command in (("state", "import", export, "--conf", conf), ("run", conf)):
        said = one_line(buckets(*command))
        assert as_worded(said)
    checkpoint.job.begin_imported(basis(), "me", "second", 2)
    said = one_line(buckets("state", "import", export, "--conf", conf, "--dry-run"))
    assert as_worded(said)


def remove_log(table):
    shutil.rmtree(table / "_delta_log")


def cut_off(table):
    (file,) = table.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])


def remove_rows(table):
    (file,) = table.glob("*.parquet")
    file.unlink()


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("damage", [remove_log, cut_off, remove_rows])
def test_an_export_with_a_table_that_cannot_be_read_is_refused(
    buckets, conf, export, tmp_path, name, damage, as_worded
):
    damage(export / name)
    said = one_line(buckets("state", "import", export, "--conf", conf, "--dry-run"))
    assert as_worded(said)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("name", CHECKED)
def test_an_export_with_other_rows_than_were_written_is_refused(buckets, conf, export, name, as_worded):
    manifest = ExportManifest.read(export)
    more = TableCheck(rows=manifest.tables[name].rows + 1, checksum=0)
    manifest.model_copy(update={"tables": manifest.tables | {name: more}}).write(export)
    said = one_line(buckets("state", "import", export, "--conf", conf, "--dry-run"))
    assert as_worded(said)


def test_an_export_with_as_many_rows_of_other_contents_is_refused(export, as_worded):
    manifest = ExportManifest.read(export)
    check_contents(export, manifest)
    rows = DeltaTable(export / KEYS).to_pyarrow_table()
    write_deltalake(export / KEYS, rows.set_column(2, "head", pa.array([b"y"])), mode="overwrite")
    check_row_counts(export, manifest)
    with pytest.raises(BucketsError, check=as_worded):
        check_contents(export, manifest)


def test_what_cannot_be_read_on_the_way_is_told_too(export, as_worded):
    (file,) = (export / PAGES).glob("*.parquet")
    written = bytearray(file.read_bytes())
    written[4:40] = bytes(36)
    file.write_bytes(written)
    with pytest.raises(BucketsError, check=as_worded):
        check_table(export, PAGES)


def test_what_is_no_checkpoint_is_not_exported(buckets, conf, tmp_path, as_worded):
    said = one_line(buckets("state", "export", conf, "--to", tmp_path / "export"))
    assert as_worded(said)
    assert not (tmp_path / "export").exists()


def test_the_state_of_a_job_that_runs_is_not_exported(buckets, conf, tmp_path, as_worded):
    checkpoint = tmp_path / "checkpoint"
    JobRecord(checkpoint).open(basis())
    with Lock(checkpoint):
        said = one_line(buckets("state", "export", checkpoint, "--to", tmp_path / "export"))
    assert as_worded(said)


@pytest.mark.parametrize("command", ["export", "import"])
def test_each_command_has_examples(buckets, command):
    ran = buckets("state", command, "--help")
    assert ran.code == 0
    assert f"buckets state {command} " in ran.out

"""`buckets state export` and `import`: what is refused before Spark starts, in one line."""

import pytest
import yaml

from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.lock import locked
from tests.core.checkpoints import basis
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


def one_line(ran) -> str:
    (line,) = ran.err.splitlines()
    assert ran.code == 1
    assert ran.out == ""
    return line


def test_a_folder_that_is_no_export_or_half_of_one_is_refused(buckets, conf, tmp_path):
    (tmp_path / "export" / "keys").mkdir(parents=True)
    said = one_line(buckets("state", "import", tmp_path / "export", "--conf", conf))
    assert "is no whole export: there is no export.json in it" in said


def test_a_name_that_is_no_name_is_refused(buckets, conf, tmp_path):
    said = one_line(buckets("state", "import", tmp_path, "--conf", conf, "--rename", "payer"))
    assert "--rename: 'payer' says no new name of a field" in said


def test_what_is_no_checkpoint_is_not_exported(buckets, conf, tmp_path):
    said = one_line(buckets("state", "export", conf, "--to", tmp_path / "export"))
    assert "is no checkpoint" in said
    assert not (tmp_path / "export").exists()


def test_the_state_of_a_job_that_runs_is_not_exported(buckets, conf, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    JobRecord(checkpoint).open(basis())
    with locked(checkpoint):
        said = one_line(buckets("state", "export", checkpoint, "--to", tmp_path / "export"))
    assert "is in use by process" in said


@pytest.mark.parametrize("command", ["export", "import"])
def test_each_command_has_examples(buckets, command):
    ran = buckets("state", command, "--help")
    assert ran.code == 0
    assert f"buckets state {command} " in ran.out

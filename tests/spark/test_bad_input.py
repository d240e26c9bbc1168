"""What people get wrong, through the command line: one line that says what, a non-zero exit, nothing touched."""

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from buckets.checkpoint.lock import Lock
from buckets.errors import BucketsError
from buckets.exit_codes import MISUSED
from tests.spark.command import one_line, run_command, run_here
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, SCHEMA, payments

pytestmark = pytest.mark.spark

EVENTS = payments(3)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class ComesToSpark(BaseException):
    """A command wants a session, which would be that of the tests."""


def run_unless_spark(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str] | None:
    """Run `buckets` in this process, which takes a hundredth of the time; None where it comes to start Spark."""
    with contextlib.chdir(cwd), mock.patch.object(SparkSession.Builder, "getOrCreate", side_effect=ComesToSpark):
        try:
            return run_here(*arguments)
        except ComesToSpark:
            return None


def fault(*arguments: str | Path, cwd: Path, code: int = 1) -> str:
    """The one line that a command ends with; every file that was there stays as it was."""
    before = contents(cwd)
    done = run_unless_spark(*arguments, cwd=cwd) or run_command(*arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    line = one_line(done, code)
    after = contents(cwd)
    assert {name: after.get(name) for name in before} == before
    return f"error: {line}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Good events, rules and schema, and results of an earlier evaluation."""
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "alerts.jsonl").write_text('{"alert_id": "of an earlier run"}\n')
    return tmp_path


def evaluate_fault(folder: Path, **options: str) -> str:
    given = {"events": "events.jsonl", "rules": "rules.yaml", "schema": "schema.yaml", "out": "out"} | options
    arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", value)]
    return fault("evaluate", *arguments, cwd=folder)


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(columns), path)


def test_a_file_that_is_not_there(folder, as_worded):
    assert as_worded(evaluate_fault(folder, events="gone.jsonl"))


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.csv", "blank.jsonl"])
def test_a_file_without_a_line(folder, name, as_worded):
    (folder / name).write_text("\n  \n" if name == "blank.jsonl" else "")
    assert as_worded(evaluate_fault(folder, events=name))


def test_a_file_of_which_less_than_half_can_be_read(folder, as_worded):
    (folder / "events.jsonl").write_bytes(b"\xff\n{\n" + json.dumps(EVENTS[0]).encode())
    options = ["--events", "events.jsonl", "--rules", "rules.yaml", "--schema", "schema.yaml", "--out", "out"]
    done = run_command("evaluate", *options, cwd=folder)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert as_worded(said)
    assert len((folder / "out" / "dead_letters.jsonl").read_text().splitlines()) == 2


def test_a_parquet_file_without_a_row(folder, as_worded):
    write_parquet(folder / "empty.parquet", {name: [] for name in EVENTS[0]})
    assert as_worded(evaluate_fault(folder, events="empty.parquet"))


def test_a_directory_for_a_file(folder, as_worded):
    (folder / "events").mkdir()
    assert as_worded(evaluate_fault(folder, events="events"))


def test_an_unknown_suffix(folder, as_worded):
    (folder / "events.xlsx").write_text("x")
    assert as_worded(evaluate_fault(folder, events="events.xlsx"))


def test_a_text_file_with_the_name_of_a_parquet_file(folder, as_worded):
    (folder / "events.parquet").write_text("id,t\n")
    assert as_worded(evaluate_fault(folder, events="events.parquet"))


def test_csv_without_its_time(folder, as_worded):
    (folder / "events.csv").write_text("id,payer,kind,amount\na,ann,CARD,1\n")
    assert as_worded(evaluate_fault(folder, events="events.csv"))


def test_parquet_without_its_time(folder, as_worded):
    write_parquet(folder / "events.parquet", {"id": ["a"], "payer": ["ann"], "kind": ["CARD"], "amount": ["1"]})
    assert as_worded(evaluate_fault(folder, events="events.parquet"))


def test_json_about_something_else(folder, as_worded):
    (folder / "events.jsonl").write_text('{"name": "x", "size": 1}\n')
    assert as_worded(evaluate_fault(folder))


def test_csv_with_a_broken_header(folder, as_worded):
    (folder / "events.csv").write_text('id,"t,payer\n')
    assert as_worded(evaluate_fault(folder, events="events.csv"))


def changed_rule(**changes: Any) -> str:
    return yaml.safe_dump({"rules": [RULES[0] | changes]}, sort_keys=False)


@pytest.mark.parametrize(
    "rules",
    [
        changed_rule(group_by=["owner"]),
        changed_rule(aggregate={"function": "sum", "measure": "price"}),
        changed_rule(where={"colour": "red"}),
        changed_rule(limit={"operator": ">", "value": "many"}),
        changed_rule(window={"length": "1 day"}),
        changed_rule(colour="red"),
        yaml.safe_dump({"rules": [RULES[0], RULES[0]]}),
        "rules: []\n",
        "rules:\n  - rule_id: [\n",
        "",
    ],
)
def test_a_rule_file_that_is_not_valid(folder, rules, as_worded):
    (folder / "rules.yaml").write_text(rules)
    assert as_worded(evaluate_fault(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"measures": {"amount": {"scale": "two"}}},
        {"attributes": {"payer": "text"}},
        {"event_id": "amount"},
        {"colour": "red"},
    ],
    ids=["scale", "type", "declared twice", "unknown field"],
)
def test_a_schema_that_is_not_valid(folder, changes, as_worded):
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA | changes))
    assert as_worded(evaluate_fault(folder))


def test_results_where_a_file_is(folder, as_worded):
    (folder / "taken").write_text("mine")
    assert as_worded(evaluate_fault(folder, out="taken"))


def test_results_below_a_file(folder, as_worded):
    (folder / "taken").write_text("mine")
    assert as_worded(evaluate_fault(folder, out="taken/out"))


@pytest.mark.parametrize("value", ["0", "many", "99999"])
def test_a_number_of_shards_that_cannot_be(folder, value):
    options = ["--events", "events.jsonl", "--rules", "rules.yaml", "--schema", "schema.yaml", "--out", "out"]
    assert "--shards" in fault("evaluate", *options, "--shards", value, cwd=folder, code=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {"kind": "xml", "path": "source"}},
        {"source": {"kind": "json", "path": "nowhere"}},
        {"source": {"kind": "delta", "path": "source"}},
        {"source": {"kind": "json", "path": "source", "arrival": "t"}},
        {"rules": "gone.yaml"},
        {"checkpoint": None},
        {"trigger": {"interval": "soon"}},
        {"engine": {"shards": 0}},
        {"engine": {"precision": {"tail": "1h", "resolution": "8d"}}},
        {"engine": {"precision": {"groups": [{"group_by": ["kind"]}]}}},
        {"colour": "red"},
        {"stall_patience": "0s"},
        {"checkpoint": "file:///tmp/checkpoint"},
        {"output": {"path": "dbfs:/tables"}},
        {"source": {"kind": "json", "path": "hdfs://a/x"}},
        {"archive": {"path": "gs://bucket/../archive"}},
    ],
)
def test_a_configuration_that_is_not_valid(tmp_path, changes, as_worded):
    job = JobFolder(tmp_path, **changes)
    job.add_events(EVENTS, files=1)
    assert as_worded(fault("run", "conf.yaml", cwd=tmp_path, code=MISUSED))


@pytest.mark.parametrize(
    "changes",
    [{"spark": {"spark.driver.memory": "lots"}}, {"output": {"path": "rules.yaml"}}, {"checkpoint": "source"}],
)
def test_a_configuration_with_which_no_job_starts(tmp_path, changes, as_worded):
    job = JobFolder(tmp_path, **changes)
    job.add_events(EVENTS, files=1)
    assert as_worded(fault("run", "conf.yaml", cwd=tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"shards": 5, "allowed_lateness": "100ms"}},
        {"engine": {"shards": 4, "allowed_lateness": "1h"}},
        {"schema": "other-scale.yaml"},
        {"schema": "other-type.yaml"},
        {"schema": "more-digits.yaml"},
        {"source": {"kind": "json", "path": "other"}},
        {"source": {"kind": "csv", "path": "other"}},
        {"source": {"subfolders": True}},
        {"output": {"path": "other-tables"}},
        {"checkpoint": "other-checkpoint"},
    ],
    ids=[
        "shards",
        "lateness",
        "scale",
        "type",
        "more digits",
        "source",
        "kind of source",
        "subfolders",
        "output",
        "checkpoint",
    ],
)
def test_a_checkpoint_of_another_job_is_refused_and_all_is_as_it_was(finished, tmp_path, changes, as_worded):
    job = finished.copy_to(tmp_path)
    (tmp_path / "other").mkdir()
    job.write_schema(SCHEMA | {"measures": {"amount": {"scale": 3}}}, "other-scale.yaml")
    job.write_schema(SCHEMA | {"measures": SCHEMA["measures"] | {"tax": {"scale": 3}}}, "more-digits.yaml")
    job.write_schema(SCHEMA | {"attributes": {"payer": "long", "kind": "string"}}, "other-type.yaml")
    source = {"kind": "json", "path": str(finished.source)} | changes.get("source", {})
    job.configure(**(changes | {"source": source}))
    assert as_worded(fault("run", "conf.yaml", cwd=tmp_path))


def test_a_checkpoint_that_another_run_is_on(finished, tmp_path, as_worded):
    job = finished.copy_to(tmp_path)
    with Lock(job.checkpoint):
        assert as_worded(fault("run", job.conf, cwd=tmp_path))


@pytest.mark.parametrize("command", [["stats"], ["show", "--group", "payer", "--key", "ann"]], ids=["stats", "show"])
def test_the_state_of_what_is_no_checkpoint(folder, command, as_worded):
    assert as_worded(fault("state", command[0], "out", *command[1:], cwd=folder))


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


def flip(path: Path) -> None:
    """Change one bit, as a disk does."""
    content = bytearray(path.read_bytes())
    content[-20] ^= 0x40
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.fixture(scope="module")
def begun(spark, tmp_path_factory) -> JobFolder:
    """A job that has done two batches, with something more to do."""
    job = JobFolder(tmp_path_factory.mktemp("begun"))
    job.add_events(payments(40), files=2)
    job.run(spark)
    job.add_file(2, [json.dumps(event | {"id": f"again-{event['id']}"}) for event in payments(20)])
    return job


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink], ids=["flipped", "cut", "gone"])
def test_a_damaged_file_of_the_state_is_said_to_be_that(spark, begun, tmp_path, harm):
    job = begun.copy_to(tmp_path)
    for partition in (job.checkpoint / "state" / "0").glob("[0-9]*/shards"):
        harm(newest(partition, "*.changelog"))
    with pytest.raises(
        BucketsError, match=r"^the state in the checkpoint cannot be read: one of its files is damaged or miss"
    ):
        job.run(spark)


@pytest.mark.parametrize("table", ["alerts", "batches"])
def test_a_table_whose_log_is_cut_is_named(spark, begun, tmp_path, table, as_worded):
    job = begun.copy_to(tmp_path)
    cut(newest(job.tables / table / "_delta_log", "*.json"))
    with pytest.raises(BucketsError, check=as_worded):
        job.run(spark)

"""What only some need: commands load no more than they use, and say which extra brings a package that is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buckets.exit_codes import DONE, MISUSED
from buckets.resources import DEMO_RULES, resource
from tests.cli_unit.ran import Ran, one_line

EXTRAS = ("anyio", "fastavro", "mcp", "mcp_types", "obstore", "prometheus_client", "starlette", "uvicorn")
HEAVY = {"confluent_kafka", "deltalake", "google.protobuf", "numba", "pandas", "pyspark"}
WITHOUT = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
RUN = "import sys; from buckets.cli.commands import exit_code; code = exit_code(); {then}sys.exit(code)"
LOADED = f"print(*sorted({HEAVY} & sys.modules.keys()), file=sys.stderr); "


@pytest.fixture
def plain_process(tmp_path):
    """Runs a command line in a process of its own, which finds none of what extras bring."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)

    def run(*arguments: object, then: str = "", **environment: str) -> Ran:
        paths = os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])])
        ran = subprocess.run(
            [sys.executable, "-c", RUN.format(then=then), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": paths, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return run


@pytest.fixture
def job(plain_process, tmp_path) -> Path:
    assert plain_process("init", "job").code == DONE
    return tmp_path / "job"


@pytest.mark.parametrize(
    ("command", "needed", "extra"),
    [
        (["console", "job/conf.yaml"], "the console needs starlette", "console"),
        (["mcp", "job/conf.yaml"], "an assistant needs anyio", "mcp"),
        (["run", "job/conf.yaml", "--metrics-port", "9464"], "metrics.port needs prometheus-client", "metrics"),
        (["alerts", "s3://folder/tables"], "an object store needs obstore", "s3"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(plain_process, job, command, needed, extra):
    assert one_line(plain_process(*command), MISUSED) == f'{needed}: pip install "buckets[{extra}]"'


def test_all_else_needs_no_extra(plain_process, job):
    schema = ["--schema", "job/schema.yaml"]
    events = sorted((job / "payments").iterdir())[0]
    for command in (
        ["rules", "check", "job/rules.yaml", "--conf", "job/conf.yaml", "--events", events],
        ["rules", "test", "job/rules.yaml", *schema],
        ["rules", "list", "--conf", "job/conf.yaml"],
        ["check", "job/conf.yaml"],
        ["evaluate", "--rules", "job/rules.yaml", *schema, "--events", events, "--out", "results"],
        ["generate", "--out", "stream", "--transactions", "1000"],
        ["metrics", "rules"],
    ):
        ran = plain_process(*command)
        assert ran.code == DONE, ran.err


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["rules", "--help"],
        ["run", "--help"],
        ["watch", "--help"],
        ["init", "other"],
        ["rules", "check", DEMO_RULES, "--conf", resource("conf/demo.yaml")],
        ["rules", "show"],
        ["rules", "schema"],
        ["generate", "--out", "stream", "--transactions", "1000"],
    ],
)
def test_what_a_command_does_not_use_is_not_loaded(plain_process, command):
    loaded = plain_process(*command, then=LOADED).err.splitlines()[-1]
    assert set(loaded.split()) <= ({"confluent_kafka", "deltalake"} if command[-1] == "--help" else set())

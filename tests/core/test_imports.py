"""Imports: the core knows no Spark, and no module uses what another one keeps to itself."""

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import buckets

OUTSIDE = ("buckets.spark", "buckets.cli")
SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "pyspark" in sys.modules:
        sys.exit(f"{name} imports pyspark")
"""


def core_modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(buckets.__path__, "buckets.")]
    return [name for name in names if not name.startswith(OUTSIDE)]


def test_no_module_of_the_core_imports_pyspark():
    names = core_modules()
    assert {
        "buckets.kernel.kernel",
        "buckets.engine.stages.shard",
        "buckets.engine.batch.fan_out",
        "buckets.generator.stream",
    } <= set(names)
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_starts_without_pyspark():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "buckets.cli.commands"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_choose_from_where_they_import_pyspark():
    script = "import sys, buckets.spark.worker_daemon; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_command_line_imports_no_kernels():
    script = "import sys, buckets.cli.commands; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_configuration_is_read_without_kernels_and_libraries_of_formats_that_it_does_not_name():
    script = """
import sys
from pathlib import Path
from buckets.checkpoint import writer_schemas
from buckets.config.job import load_job
load_job(Path(sys.argv[1]))
print({"numba", "fastavro", "google.protobuf", "grpc_tools"} & sys.modules.keys())
"""
    conf = str(ROOT / "conf" / "kafka.yaml")
    done = subprocess.run([sys.executable, "-c", script, conf], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


ROOT = Path(__file__).parents[2]


def private_names(text: str) -> Iterator[str]:
    """Names with an underscore that a module takes from another one of the project: by import, or through its name."""
    tree, modules = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "buckets":
            modules |= {alias.asname or alias.name for alias in node.names}
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Import):
            modules |= {alias.asname or "buckets" for alias in node.names if alias.name.split(".")[0] == "buckets"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner in modules or owner.startswith("buckets."):
                yield f"{owner}.{node.attr}"


def is_private(name: str) -> bool:
    of_tuples = ("_make", "_replace", "_asdict", "_fields", "_field_defaults")  # Documented names of NamedTuple
    return name.startswith("_") and not name.startswith("__") and name not in of_tuples


@pytest.mark.parametrize(
    "text",
    [
        "from buckets.kernel.kernel import _test",
        "from buckets.kernel import kernel\nkernel._test",
        "import buckets.kernel.kernel as k\nk._test",
        "import buckets.kernel.kernel\nbuckets.kernel.kernel._test",
        "from buckets.feeds.topics import RulesTopic\nRulesTopic._take",
    ],
)
def test_a_private_name_of_another_module_is_noticed(text):
    assert len(list(private_names(text))) == 1


def test_no_module_uses_private_names_of_another():
    files = [path for folder in ("buckets", "jobs", "bench", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    found = {f"{path.relative_to(ROOT)}: {name}" for path in files for name in private_names(path.read_text("utf-8"))}
    assert found == set()

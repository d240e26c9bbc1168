"""The core knows no Spark."""

import pkgutil
import subprocess
import sys

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
    assert {"buckets.kernel", "buckets.shard", "buckets.fan_out", "buckets.generator.stream"} <= set(names)
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_starts_without_pyspark():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "buckets.cli.main"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

"""A wheel that is used without being installed, as by `--py-files`, is refused in one line."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("job", ["score.py", "audit.py"])
def test_a_wheel_on_the_path_is_refused_in_one_line(tmp_path, as_worded, job):
    wheel = tmp_path / "buckets.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(ROOT / "buckets" / "__init__.py", "buckets/__init__.py")
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / job), "conf.yaml"],
        env=os.environ | {"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert as_worded(line)

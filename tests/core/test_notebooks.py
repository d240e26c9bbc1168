"""The notebooks run as they are, and those for Jupyter are those for marimo."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.jupyter_notebook import NOTEBOOKS, jupyter_text

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"PAYMENTS": "10000", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
LINE = re.compile(r"^(rules|model) +(\d+) +([\d.]+) +([\d.]+) +(\d+) of (\d+)$", re.MULTILINE)
pytestmark = pytest.mark.slow


def ran(*command: str) -> str:
    done = subprocess.run(command, env=os.environ | SMALL, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(printed: str) -> None:
    """Rules and model were compared at the same number of alerts, and both found fraud."""
    names = ("name", "alerts", "precision", "recall", "caught", "cases")
    rules, model = (dict(zip(names, line, strict=True)) for line in LINE.findall(printed))
    assert (rules["name"], model["name"]) == ("rules", "model")
    assert rules["alerts"] == model["alerts"] != "0"
    assert rules["cases"] == model["cases"] != "0"
    assert all(float(each["precision"]) > 0.5 and float(each["recall"]) > 0.1 for each in (rules, model))


def check_live(printed: str) -> None:
    """What the stream computed is what the history says, and the model found fraud."""
    found = re.search(r"live: ([\d,]+) payments, 0 different, (\d+) of the 100", printed)
    assert found is not None, printed
    assert "0" not in found.groups()


@pytest.mark.parametrize(("name", "check"), [("train", check), ("live", check_live)])
def test_a_notebook_of_marimo_runs_as_a_script(name, check):
    check(ran(sys.executable, str(NOTEBOOKS / f"{name}.py")))


@pytest.mark.nightly
def test_the_notebook_of_jupyter_runs(tmp_path):
    done = tmp_path / "done.ipynb"
    execute = "from nbclient.cli import main; main()"
    ran(sys.executable, "-c", execute, str(NOTEBOOKS / "train.ipynb"), "--output", str(done))
    outputs = [out for cell in json.loads(done.read_text())["cells"] for out in cell.get("outputs", [])]
    check("".join("".join(out["text"]) for out in outputs if out.get("name") == "stdout"))
    assert any("image/png" in out.get("data", {}) for out in outputs)


@pytest.mark.parametrize("name", ["train", "live"])
def test_both_notebooks_are_the_same(name):
    notebook = NOTEBOOKS / f"{name}.py"
    assert notebook.with_suffix(".ipynb").read_text(encoding="utf-8") == jupyter_text(notebook)

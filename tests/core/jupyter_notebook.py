"""Makes the notebooks for Jupyter of those for marimo: `python -m tests.core.jupyter_notebook`."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def jupyter_text(notebook: Path) -> str:
    """Return a notebook of marimo as one of Jupyter."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "exported.ipynb"
        export = [
            sys.executable,
            "-m",
            "marimo",
            "export",
            "ipynb",
            "--sort",
            "top-down",
            "-o",
            str(out),
            str(notebook),
        ]
        subprocess.run(export, check=True, capture_output=True)
        exported = json.loads(out.read_text(encoding="utf-8"))
    cells = [cell for cell in exported["cells"] if "".join(cell["source"]) != "import marimo as mo"]
    written = {
        "cells": [cell | {"metadata": {}, "id": f"cell-{number}"} for number, cell in enumerate(cells, 1)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": exported["nbformat"],
        "nbformat_minor": exported["nbformat_minor"],
    }
    return json.dumps(written, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for notebook in NOTEBOOKS.glob("*.py"):
        notebook.with_suffix(".ipynb").write_text(jupyter_text(notebook), encoding="utf-8")

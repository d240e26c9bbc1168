"""Renders the chart for each of the example values: `python -m deploy.helm.render` writes what is in `rendered`.

What helm makes of the chart is kept, so that a change of a template is read as a change of what Kubernetes gets, and so
that tests need no helm: `SOURCE` there names the chart and values from which it was made.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from buckets.errors import BucketsError
from deploy.go_program import built, place

FOLDER = Path(__file__).resolve().parent
CHART = FOLDER / "buckets"
RENDERED = FOLDER / "rendered"
SOURCE = RENDERED / "SOURCE"
_MODULE, _VERSION, _COMMAND = "helm.sh/helm/v4", "v4.3.1", "cmd/helm"


def examples() -> list[Path]:
    """Return the files of example values."""
    return sorted((FOLDER / "values").glob("*.yaml"))


def digest() -> str:
    """Return a hash of the chart and of the example values."""
    files = sorted(path for path in (*CHART.rglob("*"), *examples()) if path.is_file())
    texts = b"".join(f"{path.relative_to(FOLDER)}\0".encode() + path.read_bytes() for path in files)
    return hashlib.sha256(texts).hexdigest()


def rendered(values: Path) -> str:
    """Return what Kubernetes gets of the chart with a file of values, as release `fraud` in namespace `payments`."""
    return _helm("template", "fraud", CHART, "--namespace", "payments", "--values", values)


def lint(values: Path) -> str:
    """Return what helm says of the chart with a file of values.

    Raises:
        BucketsError: something is wrong with it.
    """
    return _helm("lint", "--strict", "--values", values, CHART)


def package(folder: Path) -> Path:
    """Put the chart as one file into a folder; returns its path."""
    said = _helm("package", CHART, "--destination", folder)
    return Path(said.strip().rpartition(": ")[2])


def helm_is_built() -> bool:
    """Return whether helm is there; to build it takes minutes."""
    return place(_VERSION, _COMMAND).exists()


def _helm(*arguments: str | Path) -> str:
    helm = built(_MODULE, _VERSION, _COMMAND)
    if helm is None:
        message = "helm is built with Go: put Go 1.26 or newer on PATH"
        raise BucketsError(message)
    ended = subprocess.run([helm, *arguments], check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        message = f"helm {arguments[0]}: {ended.stdout}{ended.stderr}"
        raise BucketsError(message)
    return ended.stdout


def main() -> None:
    """Lint the chart and write what it makes of all examples."""
    RENDERED.mkdir(exist_ok=True)
    for values in examples():
        lint(values)
        (RENDERED / values.name).write_text(rendered(values), encoding="utf-8")
    SOURCE.write_text(f"{digest()}\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except BucketsError as error:
        sys.exit(str(error))

"""What a running job needs of `requirements.lock`: `python -m deploy.requirements` prints it.

The lock file has the tools of development too. uv finds out which of its packages `buckets[all]` asks for.
"""

import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

from buckets.errors import BucketsError

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"


def runtime_requirements() -> str:
    """Return the lines of the lock file for all that `buckets[all]` depends on, with their markers and hashes.

    Raises:
        BucketsError: uv cannot tell.
    """
    return _compiled("pyproject.toml", "--all-extras")


def build_requirements() -> str:
    """Return the lines of the lock file for what builds packages that are published as source."""
    return _compiled("-", text="setuptools\n")


def _compiled(*asked: str, text: str = "") -> str:
    options = [
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
        "--no-annotate",
        "--no-header",
        "--quiet",
    ]
    command = [find_uv_bin(), "pip", "compile", *asked, "--constraints", str(LOCK), *options]
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"uv cannot tell what a job needs: {' '.join(done.stderr.split())[:300]}"
        raise BucketsError(message)
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(runtime_requirements())

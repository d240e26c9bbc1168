"""An environment of Python that has a package as people install it, and nothing of the checkout."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from buckets.java.jars import FOLDER_VARIABLE, jar_folder

ROOT = Path(__file__).parents[2]


def build(target: str, folder: Path) -> Path:
    """Build the `wheel` or the `sdist` of the checkout into an empty folder; returns its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@dataclass(frozen=True)
class Environment:
    """An environment: its folder, and the variables with which its commands run, beside those that find Java."""

    folder: Path
    variables: Mapping[str, str]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(self, program: str, *arguments: str | Path, cwd: Path) -> str:
        """Run one of its programs, which succeeds; returns what it prints."""
        inherited = {name: os.environ[name] for name in ("JAVA_HOME", "TMPDIR") if name in os.environ}
        path = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        ran = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd, env=inherited | path | dict(self.variables),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{program} {arguments}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        return ran.stdout


def made(folder: Path, variables: Mapping[str, str]) -> Environment:
    """Make an environment that has nothing, not even pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Environment(folder, variables)


def install(environment: Environment, *arguments: str | Path) -> None:
    """Install into an environment, with the uv of this one."""
    command = [find_uv_bin(), "pip", "install", "--quiet", "--python", environment.python, *arguments]
    ran = subprocess.run(command, cwd=environment.folder, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def lent(folder: Path, package: Path) -> Environment:
    """Return an environment with a package. This one lends it what the package depends on, the jars, and its caches."""
    environment = made(folder, {FOLDER_VARIABLE: str(jar_folder()), "HOME": os.environ.get("HOME", "")})
    (places,) = folder.glob("lib/python*/site-packages")
    # Path files in a folder that a path file names are not read, so the checkout is not there.
    (places / "lent.pth").write_text(sysconfig.get_path("purelib"))
    install(environment, "--no-index", "--no-deps", "--no-build-isolation", package)
    return environment

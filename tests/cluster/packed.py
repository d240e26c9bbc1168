"""A packed environment as teams ship one with `--archives`: a virtual environment with a wheel in it, to be moved.

What the wheel needs is copied from the environment of the tests, so that nothing is fetched; pyspark is left out, since
executors have the cluster's. That is 646 MB, which each executor unpacks and compiles. So by day what the wheel needs
is lent: a path file names where it lies on this machine.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from tests.laws import NIGHTLY

ROOT = Path(__file__).parents[2]
_LEFT_OUT = {"pyspark"}
_NOT_NEEDED = re.compile(r"/(tests?|include|__pycache__)/|\.(pyx|pxd|h|hpp|a|pyc)$")


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build the wheel of a checkout."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(hatchling, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def pack(wheel: Path, folder: Path) -> Path:
    """Pack an environment with a wheel and what it needs, or what leads to it."""
    environment, packed = folder / "environment", folder / "environment.tar.gz"
    venv.create(environment, symlinks=True, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    if not NIGHTLY:
        # Path files in a folder that a path file names are not read, so the checkout is not there.
        (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    for path, name in _dependencies() if NIGHTLY else ():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        _link(path, site / name)
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        for part in environment.iterdir():
            tar.add(part, arcname=part.name)
    return packed


def _link(path: Path, copy: Path) -> None:
    """Copy a file, which takes no room where both lie on one disk."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)


def _dependencies() -> Iterator[tuple[Path, str]]:
    """Yield the files of all distributions that the project needs, each with its name in `site-packages`."""
    for needed in _closure("buckets"):
        for file in needed.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file() and not _NOT_NEEDED.search(f"/{file}"):
                yield path, str(file)


def _closure(name: str) -> list[Distribution]:
    """Return the distributions that one needs, with those that they need."""
    waiting, found = _needs(distribution(name)), dict[str, Distribution]()
    while waiting:
        name = waiting.pop()
        if name not in found and name not in _LEFT_OUT:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:  # of another platform, or an older Python
                continue
            waiting += _needs(found[name])
    return list(found.values())


def _needs(of: Distribution) -> list[str]:
    plain = [each for each in of.requires or () if "extra ==" not in each]
    return [re.split(r"[^\w.-]", each, maxsplit=1)[0].lower().replace("_", "-") for each in plain]

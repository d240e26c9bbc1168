"""Parts of `requirements.lock`: `python -m deploy.requirements` prints what a running job needs.

The lock file has the tools of development too. Which packages a job needs follows from the project file and from what
the installed packages say of themselves, so this runs in the environment that `make setup` makes.
"""

import sys
import tomllib
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BUILD_TOOLS = ("setuptools",)
"""What builds packages that are published as source."""


def locked(names: Collection[str]) -> str:
    """Return the lines of the lock file for packages, with their markers and hashes."""
    return "".join(text for name, text in _entries(LOCK.read_text(encoding="utf-8")) if name in names)


def runtime_requirements() -> str:
    """Return the lines of the lock file for all that `buckets` depends on."""
    return locked(runtime_packages())


def runtime_packages() -> frozenset[str]:
    """Return the names of all packages that `buckets` depends on, directly or not, on whatever system."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        asked = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if asked not in found:
            found.add(asked)
            waiting.extend(_dependencies(requirement))
    return frozenset(name for name, _ in found)


def _dependencies(requirement: Requirement) -> Iterator[Requirement]:
    """Yield what a package asks for, with the extras that are asked of it; nothing for one that is not installed."""
    try:
        asked = distribution(requirement.name).requires or []
    except PackageNotFoundError:  # it is for other systems
        return
    for text in asked:
        dependency = Requirement(text)
        marker = str(dependency.marker or "")
        if "extra ==" not in marker or any(f'extra == "{extra}"' in marker for extra in requirement.extras):
            yield dependency


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield each package of a lock file: its name, and its lines."""
    entries: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        if line[0] not in " #":
            entries.append([])
        if entries:
            entries[-1].append(line)
    for lines in entries:
        yield canonicalize_name(lines[0].partition("==")[0]), "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(runtime_requirements())

"""Versions: of the project, and of the libraries on which results depend."""

import platform
import sys
from importlib.metadata import version

_PARTS = ("pyspark", "deltalake", "numba", "pyarrow")


def own_version() -> str:
    """Return the version of the project."""
    return str(sys.modules["buckets"].__version__)


def versions_text() -> str:
    """Return the versions of the project, of Python, and of the libraries that read, compute and write."""
    parts = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in _PARTS)]
    return f"buckets {own_version()} ({', '.join(parts)})"

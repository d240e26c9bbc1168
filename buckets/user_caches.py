"""Folders that cache code, kernels and jars, once for each user of a machine.

As their content is executed, each must belong to the user, and nobody else may write into it.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def own_cache(name: str) -> Path | None:
    """Make a folder of this name among the user's caches, or beside the package's own files.

    Returns:
        The folder; None if no such folder can be the user's own.
    """
    return next((base / name for base in _bases() if _make_own(base) and _make_own(base / name)), None)


def _bases() -> Iterator[Path]:
    caches = _caches_of_user()
    if caches is not None:
        yield caches / "buckets"
    package = Path(__file__).parent
    if package.is_dir() and _is_own(package):
        yield package / "__pycache__"


def _caches_of_user() -> Path | None:
    """Return the folder of the user's caches, made if missing; None if that fails, or others could replace it."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        caches = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
        caches.mkdir(mode=0o700, parents=True, exist_ok=True)
        return None if _is_open_to_all(caches) else caches
    except (OSError, RuntimeError):  # a user without a home, or one without a place to write in it
        return None


def _make_own(folder: Path) -> bool:
    """Make a folder if it is missing, and return whether it is the user's own."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return _is_own(folder) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_own(folder: Path) -> bool:
    """Return whether a path is a folder, not a link, that belongs to the user and that nobody else may write into."""
    found = folder.lstat()
    writable_by_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not writable_by_others


def _is_open_to_all(folder: Path) -> bool:
    """Return whether anybody could replace the folder, a folder in it, or one of its parents."""
    modes = (each.stat().st_mode for each in (folder.resolve(), *folder.resolve().parents))
    return any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in modes)

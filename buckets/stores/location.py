"""Where something lies: in the file system of a machine, or in an object store."""

import re
from pathlib import Path

from buckets.errors import BucketsError
from buckets.stores.environment import check_environment
from buckets.stores.store_path import StorePath

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)")
_STORES = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfss", "abfss": "abfss"}
"""By the scheme as it may be written, the one that Spark and Delta know."""
_NOT_TAKEN = re.compile(r"[%#?\[\]\\|^\x00-\x1f\x7f]")
"""In an address that is written: Spark and Delta read it in two ways, and would not mean the same folder by it."""


def location(text: str, base: Path = Path()) -> Path:
    """Return where a path, or an address in an object store, points to that somebody has written.

    Args:
        text: as it is written.
        base: where relative paths begin.

    Raises:
        BucketsError: as `found_location`, or it is an address with a character that is not taken there.
    """
    path = found_location(text, base)
    wrong = _NOT_TAKEN.search(text) if isinstance(path, StorePath) else None
    if wrong is not None:
        message = f"{path}: {wrong[0]!r} is not taken in an address; name it without, and a space as it is, not %20"
        raise BucketsError(message)
    return path


def found_location(text: str, base: Path = Path()) -> Path:
    """Return where a path, or an address in an object store, points to that was found there, whatever its names have.

    Args:
        text: of the path.
        base: where relative paths begin.

    Raises:
        BucketsError: it begins with a scheme of no object store, such as `file:/`, or names no bucket, or the
            environment is one of which no client of a store can be made.
    """
    # A path that was read as one of a file system has one slash less.
    scheme = _SCHEME.match(text)
    if scheme is None:
        return base / text
    kind, rest = _STORES.get(scheme[1].lower()), scheme[2]
    if kind is None:
        message = (
            f"{text} begins with a scheme, {scheme[1]}:, and only paths and object stores are taken "
            f"({', '.join(f'{name}://' for name in _STORES)}); write the path alone"
        )
        raise BucketsError(message)
    parts = rest.strip("/").split("/")
    if not parts[0] or any(part in ("", ".", "..") for part in parts):
        message = f"{text}: write it as {kind}://BUCKET/FOLDER, without empty names, `.` and `..`"
        raise BucketsError(message)
    check_environment()
    return StorePath(f"{kind}:", *parts)


def in_file_system(path: Path) -> Path:
    """Return a path, as an option of a command that takes no other.

    Raises:
        BucketsError: it is an address, of which a folder with such a name would be made.
    """
    scheme = _SCHEME.match(str(path))
    if scheme is not None:
        message = f"{scheme[1]}://{scheme[2].lstrip('/')}: is no path of a file system, and nothing else is taken here"
        raise BucketsError(message)
    return path

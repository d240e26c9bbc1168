"""Copies of objects that this machine keeps, for what has to be mapped into memory."""

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

from buckets.stores.store_path import StorePath

_KEPT_S = 7 * 86_400
"""Copies that nobody has asked for as long are removed."""


def local_copy(path: Path) -> Path:
    """Return a file of this machine with what an object holds, which never changes; a file is returned as it is.

    Copies of one object are made once a machine, for all processes of a user, and kept while they are in use.

    Raises:
        OSError: it cannot be read, or not written here.
    """
    if not isinstance(path, StorePath):
        return path
    folder = Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}" / "objects"
    copy = folder / hashlib.blake2b(f"{path} {path.tag()}".encode(), digest_size=16).hexdigest()
    if copy.exists():
        os.utime(copy)
        return copy
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink()
    partial = copy.with_name(f"{copy.name}.{os.getpid()}")
    partial.write_bytes(path.read_bytes())
    partial.replace(copy)
    return copy

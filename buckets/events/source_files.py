"""The files of a source's folder, and those of them that are not read, with the reason.

Names that begin with `_` or `.` are passed over: other programs mark incomplete files and files without data by them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

FileFormat = Literal["json", "csv", "parquet"]
_NO_DATA = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})
"""What Spark and others leave beside their files, which nobody expects to be read."""


def plain_path(address: str) -> str:
    """Return the path of a file from its address in Spark, a URI."""
    return unquote(urlsplit(address).path)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is passed over."""
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def _is_descended(name: str, subfolders: bool) -> bool:
    """Return whether files in a folder of this name are read."""
    return subfolders and not is_hidden(name)


def readable_files(folder: Path, subfolders: bool) -> Iterator[Path]:
    """Yield all files of a source that are read; the source may be a single file."""
    if folder.is_file():
        yield folder
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_descended(name, subfolders)]
        yield from (Path(where, name) for name in names if not is_hidden(name))


def passed_over(folder: Path, subfolders: bool) -> Iterator[tuple[Path, str]]:
    """Yield files and folders that are not read, with the reason; without what holds no data anyway."""
    for where, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(where, name)
            if is_hidden(name) and name not in _NO_DATA and not name.endswith(".crc"):
                mark = "begins with '_' or '.'" if name.startswith(("_", ".")) else "ends with '._COPYING_'"
                what = "files in it are" if name in folders else "it is"
                yield path, f"its name {mark}, so {what} passed over; rename it to have it read"
            elif name in folders and not _is_descended(name, subfolders) and any(readable_files(path, True)):
                yield (
                    path,
                    "it is in a sub-folder; move the files up, or set source.subfolders: true with a new checkpoint",
                )
            elif name in names and path.exists() and not path.is_file():
                yield path, "it is a pipe, a socket or a device, of which nothing is read; write a file"
        folders[:] = [name for name in folders if _is_descended(name, subfolders)]

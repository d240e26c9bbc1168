"""The commits of a Delta table, read and written one by one, without listing the log.

A library that commits lists the log, more than once, so that an append costs the more the longer the log is. Who knows
the newest version needs no list: the next commit is the file of the next number, which only one writer can make.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from buckets.clock import epoch_ms
from buckets.stores.store_path import StorePath

Action = dict[str, Any]
LOG = "_delta_log"
PARTIAL = "_commit_*.json.tmp"
"""Files of commits that are being written, as delta-rs calls them too."""
_PLAIN_READER, _PLAIN_WRITER = 1, 2
_CHECKING_WRITER = 3
"""The first that holds new rows to constraints; later ones change what a file is."""


def is_plain(table: DeltaTable) -> bool:
    """Return whether a table has nothing that a writer must know besides files and numbers of applications.

    Tables of results are like that, unless somebody has added partitions, constraints or features of Delta to them.
    """
    protocol = table.protocol()
    return (
        protocol.min_reader_version <= _PLAIN_READER
        and protocol.min_writer_version <= _PLAIN_WRITER
        and not table.metadata().partition_columns
        and all(field.nullable and not field.metadata for field in table.schema().fields)
    )


def is_understood(table: DeltaTable) -> bool:
    """Return whether files of a table may be joined, and removed where no version needs them.

    Tables of results and of the audit are like that: partitions by day at most, and constraints, which are of rows.
    Where there is more, such as vectors of deleted rows, files may mean something that is not known here.
    """
    protocol, columns = table.protocol(), {field.name: str(field.type.type) for field in table.schema().fields}
    return (
        protocol.min_reader_version <= _PLAIN_READER
        and protocol.min_writer_version <= _CHECKING_WRITER
        and all(columns[name] == "date" for name in table.metadata().partition_columns)
    )


def redefines_table(actions: Iterable[Action]) -> bool:
    """Return whether a commit changes columns, properties or the protocol of its table."""
    return any("metaData" in action or "protocol" in action for action in actions)


def commit_info(operation: str, parameters: dict[str, str], is_append: bool) -> Action:
    """Return the action that says what a commit does."""
    info = {"timestamp": epoch_ms(), "operation": operation, "operationParameters": parameters}
    return {"commitInfo": info | {"isBlindAppend": is_append, "engineInfo": "buckets"}}


class Commits:
    """The commits of a table."""

    def __init__(self, table: Path) -> None:
        """Look at a table's log; nothing is read yet."""
        self._log = table / LOG

    def has(self, version: int) -> bool:
        """Return whether the commit of a version is in the log."""
        return self._path(version).exists()

    def read(self, version: int) -> list[Action]:
        """Return the actions of a commit."""
        return [json.loads(line) for line in self._path(version).read_text(encoding="utf-8").splitlines() if line]

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Write a commit, whole or not at all; return False where there is one of this version already.

        Raises:
            OSError: it cannot be written, and is not.
        """
        text, path = "".join(json.dumps(action) + "\n" for action in actions), self._path(version)
        if isinstance(path, StorePath):
            return path.write_first(text.encode()) is not None
        partial = self._log / PARTIAL.replace("*", str(uuid.uuid4()))
        try:
            partial.write_text(text, encoding="utf-8")
            return _link(partial, path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020d}.json"


def _link(partial: Path, target: Path) -> bool:
    """Give a file a second name; return False where another file has it.

    On a network file system the answer can get lost, and the second try finds the name taken by the first: the number
    of names of the file says what has happened.
    """
    try:
        os.link(partial, target)
    except OSError as error:
        if partial.stat().st_nlink > 1:
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True

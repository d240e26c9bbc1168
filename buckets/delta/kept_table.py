"""A Delta table to which one application appends batch by batch, at a cost that does not grow with the log.

The table's version and the last batch number stay in memory. An append writes a data file and the commit of the next
version, with the batch number. If that version already exists, another writer was faster: its commit shows whether the
batch is already in the table, or the version after it must be tried.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from buckets.delta.commits import (
    Action,
    Commits,
    DataFile,
    commit_info,
    discard,
    is_plain,
    redefines_table,
    with_columns,
    write_data_file,
)
from buckets.delta.whole_table import is_made, open_table, through_store
from buckets.stores.location import as_input
from buckets.stores.store_path import StorePath

NewRows = Callable[[int | None], tuple[int, pa.Table | pa.RecordBatchReader] | None]
"""Given the number of the last append (None before the first), returns the next one and its rows; None if no news."""


_HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
"""Cleaning the log lists it several times; the table's upkeep does that now and then."""


def append_new(table: DeltaTable, application: str, new_rows: NewRows) -> None:
    """Append new rows exactly once, numbered per application, and update `table` to its newest version.

    `new_rows` is called again if another writer was faster.

    Raises:
        CommitFailedError: another change came first, such as one of the table's properties.
    """
    is_again = False

    def append() -> None:
        # A commit may have succeeded although its answer was lost.
        nonlocal is_again
        if is_again:
            table.update_incremental()
        is_again = True
        while True:
            last = table.transaction_version(application)
            numbered = new_rows(last)
            if numbered is None:
                return
            number, rows = numbered
            once = CommitProperties(app_transactions=[Transaction(application, number)])
            hooks: dict[str, Any] = {"commit_properties": once, "post_commithook_properties": _HOOKS}
            try:
                write_deltalake(table, rows, mode="append", **hooks)
            except CommitFailedError:
                table.update_incremental()
                if table.transaction_version(application) == last:
                    raise
            else:
                return

    through_store(table.table_uri, append)


def append_if_plain(path: Path | str, application: str, number: int, rows: pa.Table) -> bool:
    """Append rows as `append_new` does if a table exists, is plain and has these columns; return whether it does."""
    if not is_made(path):
        return False
    table = open_table(path)
    kinds = [(field.name, field.type) for field in rows.schema]
    if not is_plain(table) or kinds != [(field.name, field.type) for field in pa.schema(table.schema().to_arrow())]:
        return False
    append_new(table, application, lambda last: None if last is not None and last >= number else (number, rows))
    return True


_LOOK_S = 10.0  # How often the existence of a table in a store is checked
_MOST_READ = 100  # The most commits of others that are read one by one; behind more, the table is reopened

WriteApart = Callable[[pa.Schema], Sequence[DataFile]]
"""Given the columns, writes rows into data files that no commit names yet, and returns these."""


@dataclass(frozen=True)
class _Head:
    """A table's last known state."""

    version: int  # its newest version
    last: int | None  # the number of the application's last append; None before the first
    columns: pa.Schema | None  # of the table; None if only the library may write it

    def has(self, number: int) -> bool:
        """Return whether the append with this number has been made."""
        return self.last is not None and self.last >= number

    def columns_of(self, rows: pa.Table) -> pa.Schema | None:
        """Return the rows' columns with the table's types; None if only the library may write them."""
        if self.columns is None or not set(rows.column_names) <= set(self.columns.names):
            return None
        return pa.schema([self.columns.field(name) for name in rows.column_names])


class KeptTable:
    """A table that stays open; for use by one thread at a time."""

    def __init__(self, path: Path, application: str) -> None:
        self._path, self._application, self._commits = path, application, Commits(path)
        self._head: _Head | None = None
        self._is_in_store, self._looked_s = isinstance(path, StorePath), time.monotonic()

    def append(self, number: int, make: Callable[[], pa.Table], write_apart: WriteApart = lambda columns: ()) -> None:
        """Append rows unless an append with this number or a later one has been made.

        `make` returns the rows, with some or all of the table's columns; `write_apart` lets others write further rows.
        """
        head, self._head = self._head, None
        if head is None or not self._is_there(head):
            head = self._open()
        # A failure leaves no state behind: the next append reads the table itself.
        self._head = head if head.has(number) else self._appended(head, number, make, write_apart)

    def _is_there(self, head: _Head) -> bool:
        """Return whether a table still exists; in a store that is not checked for each batch."""
        now_s = time.monotonic()
        if self._is_in_store and now_s - self._looked_s < _LOOK_S:
            return True
        self._looked_s = now_s
        return self._commits.has(head.version)

    def _open(self) -> _Head:
        table = open_table(self._path)
        columns = pa.schema(table.schema().to_arrow()) if is_plain(table) else None
        last = through_store(self._path, lambda: table.transaction_version(self._application))
        return _Head(table.version(), last, columns)

    def _appended(
        self, head: _Head, number: int, make: Callable[[], pa.Table], write_apart: WriteApart
    ) -> _Head | None:
        """Append, and return the table's new state; None if it must be reopened."""
        rows = make()
        columns = head.columns_of(rows) or rows.schema
        files = write_apart(columns)
        try:
            return self._put(head, number, with_columns(rows, columns), files)
        except BaseException:
            self._discard_uncommitted(number, files)
            raise

    def _discard_uncommitted(self, number: int, files: Sequence[DataFile]) -> None:
        """Delete the files of a failed append, unless its commit was made after all.

        If that is unknown the files stay, and upkeep deletes them if no commit names them.
        """
        with contextlib.suppress(Exception):
            if not self._open().has(number):
                discard(files)

    def _put(self, head: _Head, number: int, rows: pa.Table, files: Sequence[DataFile]) -> _Head | None:
        """Append `rows` and the rows of uncommitted `files`; return as `_appended`."""
        columns = rows.schema
        if head.columns_of(rows) != columns:

            def batches() -> Iterator[pa.RecordBatch]:
                yield from rows.to_batches()
                for file in files:
                    with pq.ParquetFile(as_input(file.path)) as parquet:
                        for batch in parquet.iter_batches():
                            yield from with_columns(pa.table(batch), columns).to_batches()

            def new_rows(last: int | None) -> tuple[int, pa.Table | pa.RecordBatchReader] | None:
                if last is not None and last >= number:
                    return None
                return number, pa.RecordBatchReader.from_batches(columns, batches()) if files else rows

            append_new(open_table(self._path), self._application, new_rows)
            discard(files)
            return None
        own = [write_data_file(self._path, [rows], columns)] if len(rows) else []
        try:
            after = self._committed(head, number, [*own, *files])
        except BaseException:
            self._discard_uncommitted(number, own)
            raise
        if after is not None:
            return after
        discard(own)
        head = self._open()
        if not head.has(number):
            return self._put(head, number, rows, files)
        discard(files)
        return head

    def _committed(self, head: _Head, number: int, files: Sequence[DataFile]) -> _Head | None:
        """Commit files; None if others' changes make it unclear whether that is allowed."""
        actions: list[Action] = [
            commit_info("WRITE", {"mode": "Append"}, is_append=True),
            {"txn": {"appId": self._application, "version": number}},
            *(file.added(data_change=True) for file in files),
        ]
        for version in range(head.version + 1, head.version + _MOST_READ):
            if self._commits.put(version, actions):
                return replace(head, version=version, last=number)
            others = self._commits.read(version)
            transactions = [action["txn"] for action in others if "txn" in action]
            numbers = [made["version"] for made in transactions if made["appId"] == self._application]
            if redefines_table(others) or any(last >= number for last in numbers):
                return None
        return None

"""Numbered appends to a Delta table, each of which happens once, even if several writers try.

The number of the last append is in the table's own log, in the same commit as the rows. Check and append use one
snapshot: delta-rs refuses a commit if the same application has committed since its snapshot. So of two writers that
have both passed the check, one commits and the other looks again.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from buckets.delta.whole_table import through_store

NewRows = Callable[[int | None], tuple[int, pa.Table | pa.RecordBatchReader] | None]
"""Given the number of the last append (None before the first), the next one and its rows; None if nothing is new."""


_HOOKS = PostCommitHookProperties(cleanup_expired_logs=False)
"""Cleaning the log lists it several times; who keeps a table tidy does that now and then."""
WHOLE = 1 << 40
"""More bytes than any file has: rows that are appended at once become one file."""


def append_new(
    table: DeltaTable,
    application: str,
    new_rows: NewRows,
    properties: WriterProperties | None = None,
    besides: Sequence[Transaction] = (),
) -> None:
    """Append what is new, once.

    Args:
        table: the table as it was last read; brought up to date by this.
        application: whose numbers these are.
        new_rows: what is new; asked again, with the table brought up to date, if another writer was faster.
        properties: how files are laid out, each append in one file; None: as delta-rs likes it.
        besides: other numbers that are written with the rows.

    Raises:
        BucketsError: the store of the table does not answer.
        CommitFailedError: something else has come in between, such as a change of the table's properties.
    """
    is_again = False

    def append() -> None:
        # A commit may have been made whose answer was lost.
        nonlocal is_again
        if is_again:
            table.update_incremental()
        is_again = True
        _append(table, application, new_rows, properties, besides)

    through_store(table.table_uri, append)


def _append(
    table: DeltaTable,
    application: str,
    new_rows: NewRows,
    properties: WriterProperties | None,
    besides: Sequence[Transaction],
) -> None:
    while True:
        last = table.transaction_version(application)
        numbered = new_rows(last)
        if numbered is None:
            return
        number, rows = numbered
        once = CommitProperties(app_transactions=[Transaction(application, number), *besides])
        try:
            if properties is None:
                write_deltalake(table, rows, mode="append", commit_properties=once, post_commithook_properties=_HOOKS)
            else:
                write_deltalake(
                    table,
                    rows,
                    mode="append",
                    commit_properties=once,
                    post_commithook_properties=_HOOKS,
                    writer_properties=properties,
                    target_file_size=WHOLE,
                )
        except CommitFailedError:
            table.update_incremental()
            if table.transaction_version(application) == last:
                raise
        else:
            return

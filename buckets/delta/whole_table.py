"""Opens a Delta table whose log can be read from beginning to end, and says in one line which one cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from buckets.errors import BucketsError, first_line


def open_table(path: Path | str) -> DeltaTable:
    """Open a table.

    Raises:
        BucketsError: its log is damaged.
        TableNotFoundError: there is none.
    """
    with _whole(path):
        return DeltaTable(path)


def make_table(path: Path, columns: pa.Schema) -> None:
    """Make a table, unless it is there.

    Raises:
        BucketsError: it is there, and its log is damaged.
    """
    with _whole(path):
        DeltaTable.create(path, columns, mode="ignore")


@contextmanager
def _whole(path: Path | str) -> Iterator[None]:
    """Say in one line that a log is damaged."""
    try:
        yield
    except TableNotFoundError:
        raise
    except DeltaError as error:
        # The rest of the text are addresses in a native library.
        reason = first_line(error).removeprefix("Kernel error: ")[:200]
        message = (
            f"table {path}: its log, {Path(path) / '_delta_log'}, cannot be read ({reason}): a file of it is cut, "
            "damaged or missing; restore it from a copy"
        )
        raise BucketsError(message) from error

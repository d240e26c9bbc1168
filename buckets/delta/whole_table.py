"""Opens a Delta table that is whole, and says in one line which one is not."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from buckets.errors import BucketsError, first_line

T = TypeVar("T")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MORE_TRIES, _AGAIN_AFTER_S = 3, 0.1
"""A log that is listed while it is written to may show a commit and not the one before it; a store may cut answers."""


def open_table(path: Path | str) -> DeltaTable:
    """Open a table.

    Raises:
        BucketsError: its log is damaged, or the store does not answer.
        TableNotFoundError: there is none.
    """
    return tried(path, lambda: DeltaTable(str(path)))


def make_table(path: Path, columns: pa.Schema) -> None:
    """Make a table, unless it is there.

    Raises:
        BucketsError: it is there, and its log is damaged, or the store does not answer.
    """
    tried(path, lambda: DeltaTable.create(str(path), columns, mode="ignore"))


def check_table(path: Path) -> None:
    """See that the log of a table can be read, and that the files are there that hold its rows; not what is in them.

    Raises:
        BucketsError: the log is damaged, or a file is missing.
        TableNotFoundError: there is no table.
    """
    named = pa.table(open_table(path).get_add_actions(flatten=True))["path"].to_pylist()
    gone = [name for name in named if not (path / name).exists() and not (path / unquote(name)).exists()]
    if gone:
        others = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        message = f"table {path}: file {gone[0]}{others} with rows of it is gone; restore the table from a copy"
        raise BucketsError(message)


def tried(path: Path | str, ask: Callable[[], T]) -> T:
    """Ask something of a table, a few times if it cannot be had.

    Raises:
        BucketsError: the log of the table is damaged, or the store does not answer.
        TableNotFoundError: there is none.
    """
    with _whole(path):
        for _ in range(_MORE_TRIES):
            try:
                return ask()
            except TableNotFoundError:
                raise
            except (DeltaError, OSError):
                time.sleep(_AGAIN_AFTER_S)
        return ask()


@contextmanager
def _whole(path: Path | str) -> Iterator[None]:
    """Say in one line that a log is damaged."""
    try:
        yield
    except TableNotFoundError:
        raise
    except DeltaError as error:
        if "object store" in str(error):
            raise _unopened(path, error) from error
        # The rest of the text are addresses in a native library.
        reason = first_line(error).removeprefix("Kernel error: ")[:200]
        message = (
            f"table {path}: its log, {path}/_delta_log, cannot be read ({reason}): a file of it is cut, "
            "damaged or missing; restore it from a copy"
        )
        raise BucketsError(message) from error
    except OSError as error:
        raise _unopened(path, error) from error


def _unopened(path: Path | str, error: Exception) -> BucketsError:
    # A text of several lines, in colours, whose last one says what it comes down to.
    lines = [line.strip(" ↳\t") for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    reason = lines[-1][:200] if lines else type(error).__name__
    return BucketsError(
        f"table {path}: cannot be opened ({reason}); see who may read and write there, and that a store answers"
    )

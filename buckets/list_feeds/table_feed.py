"""A list in a Delta table that is looked at while the job runs."""

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from buckets.checkpoint.topic_position import TopicPosition
from buckets.delta.commit_watch import CommitWatch
from buckets.delta.query import query
from buckets.errors import BucketsError, first_line
from buckets.list_feeds.feed import ListRead
from buckets.lists.base import ListBase
from buckets.lists.list_file import base_of


class ListTable:
    """A feed of the rows of a table: what is there is the list."""

    def __init__(self, path: Path, key: str = "key") -> None:
        """Look at a table, whose column `key` holds the keys."""
        self.origin = str(path)
        self.fault: str | None = None
        self._path, self._key = path, key
        self._first: ListBase | None = None
        self._commits = CommitWatch(path)

    def start(self, position: TopicPosition | None) -> None:
        """Read the list that the first batch sees."""
        self._commits.take()
        self._first = read_list_table(self._path, self._key)
        self.fault = None

    def read(self) -> ListRead:
        """The whole list, once after each commit; looks every second."""
        if self._first is not None:
            first, self._first = self._first, None
            return ListRead(whole=first)
        if not self._commits.has_new():
            return ListRead()
        try:
            whole = read_list_table(self._path, self._key)
        except BucketsError as error:
            self.fault = error.message
            return ListRead(faults=[error.message])
        self.fault = None
        return ListRead(whole=whole)

    def stop(self) -> None:
        """Nothing runs."""


def read_list_table(path: Path, key: str) -> ListBase:
    """Read a list from a Delta table.

    Raises:
        BucketsError: there is no such table, a file of it is missing, or its rows are no list.
    """
    try:
        table = DeltaTable(path)
    except (TableNotFoundError, DeltaError, OSError) as error:
        message = f"list {path}: is not a Delta table ({first_line(error)}); make one, or correct the path"
        raise BucketsError(message) from None
    rows = query(table, "select * from rows", f"list {path}", "restore a version")
    return base_of(rows, key, f"list {path}")

"""A list in a CSV or YAML file, or in a Delta table, that is read whole: what is there is the list."""

from pathlib import Path

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.delta.whole_table import open_named, query
from buckets.errors import BucketsError
from buckets.feeds.feed import ListRead, Watched, WatchedFiles, WatchedTable
from buckets.lists.base import ListBase
from buckets.lists.list_file import base_of, read_list


class WholeList:
    """A feed of a file or a table, which is read again after each change."""

    def __init__(self, path: Path, watched: Watched[ListBase]) -> None:
        """Follow what is at `path`."""
        self.origin = str(path)
        self.fault: str | None = None
        self._watched = watched

    def start(self, position: TopicPosition | None) -> None:
        """Read the list that the first batch sees."""
        self._watched.start()
        self.fault = None

    def read(self) -> ListRead:
        """Return the whole list, once after each change."""
        try:
            whole = self._watched.read()
        except BucketsError as error:
            self.fault = error.message
            return ListRead(faults=[error.message])
        if whole is not None:
            self.fault = None
        return ListRead(whole=whole)

    def stop(self) -> None:
        """Do nothing: nothing runs."""


class ListFile(WholeList):
    """A feed of the entries in a file."""

    def __init__(self, path: Path, key: str = "key") -> None:
        """Watch a file, whose column `key` holds the keys."""
        super().__init__(path, WatchedFiles(path, lambda: read_list(path, key)))


class ListTable(WholeList):
    """A feed of the rows of a table, which is looked at every second."""

    def __init__(self, path: Path, key: str = "key") -> None:
        """Look at a table, whose column `key` holds the keys."""
        super().__init__(path, WatchedTable(path, lambda: read_list_table(path, key)))


def read_list_table(path: Path, key: str) -> ListBase:
    """Read a list from a Delta table.

    Raises:
        BucketsError: there is no such table, a file of it is missing, or its rows are no list.
    """
    table = open_named(path, lambda why: f"list {path}: is not a Delta table ({why}); make one, or correct the path")
    rows = query(table, "select * from rows", f"list {path}", "restore a version")
    return base_of(rows, key, f"list {path}")

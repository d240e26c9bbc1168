"""Numbers the versions of lists, in a thread of its own: a batch takes the newest that is ready, and does not wait."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.list_versions import ListVersion
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.delta.whole_table import open_named, query
from buckets.errors import BucketsError, first_line, kind_and_line
from buckets.feeds.feed import ListFeed, ListRead, Watched, WatchedFiles, WatchedTable
from buckets.feeds.watched_topic import WatchedTopic
from buckets.kafka.follower import TopicMessage
from buckets.lists.base import Changes, Entry, ListBase
from buckets.lists.index import ListIndex, difference
from buckets.lists.list_file import LONGEST_KEY, base_of, read_list, read_moment_ms

LOOK_EVERY_S = 0.2


class ListBook:
    """Turns what feeds say into numbered versions."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        feeds: Mapping[str, ListFeed],
        say: Callable[[str], None] = lambda line: None,
        keep_all: bool = False,
    ) -> None:
        """Keep a book.

        Args:
            checkpoint: where versions are kept.
            feeds: by name, where each list comes from.
            say: told a line for each fault of a list, which stays as it is then.
            keep_all: whether versions are kept that no batch can be run again with.
        """
        self.names = frozenset(feeds)
        self._versions, self._batches = checkpoint.lists, checkpoint.batches
        self._feeds = dict(feeds)
        self._say = say
        self._keep_all = keep_all
        self._newest: dict[str, ListVersion] = {}
        self._indices: dict[str, ListIndex] = {}
        self._untaken: dict[str, ListRead] = {}
        self._faults: dict[str, str] | None = None
        self._said: dict[str, str] = {}
        self._failure: BucketsError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read all lists, and begin to follow them.

        Raises:
            BucketsError: one of them cannot be read.
        """
        self._stopping.clear()
        self.start_reading()
        if self._feeds:
            self._thread = threading.Thread(target=self._run, name="lists", daemon=True)
            self._thread.start()

    def start_reading(self) -> None:
        """Read all lists, and leave it to the caller to `look`; as for `start`."""
        for name, feed in self._feeds.items():
            latest = self._versions.latest(name)
            if latest is not None:
                self._newest[name] = latest
                self._indices[name] = self._versions.index(name, latest.number)
            feed.start(latest.position if latest is not None and latest.origin == feed.origin else None)
            self._take(name, feed.read())
        if self._feeds:
            self._note_faults()

    def stop(self) -> None:
        """Follow them no more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for feed in self._feeds.values():
            feed.stop()

    def newest(self) -> Mapping[str, int]:
        """Return the newest version of each list, by name.

        Raises:
            BucketsError: a list could not be followed for longer than the patience allows.
        """
        if self._failure is not None:
            raise self._failure
        return {name: version.number for name, version in self._newest.items()}

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Make versions of what feeds have found since the last look."""
        for name, feed in self._feeds.items():
            try:
                read = self._untaken.pop(name, None) or feed.read()
            except BucketsError as error:
                self._failure = error
                continue
            try:
                self._take(name, read)
            except Exception as error:  # Whatever it is, such as a full disk, it must be seen, and is tried again.
                self._untaken[name] = read
                self._report(name, kind_and_line(error))
            else:
                self._said.pop(name, None)
        self._note_faults()

    def _take(self, name: str, read: ListRead) -> None:
        """Make a new version of what a feed says, if it says anything."""
        while read.faults:
            self._report(name, read.faults.pop(0))
        before = self._indices.get(name, ListIndex.of({}))
        changes: Changes | None
        if read.whole is not None:
            index, changes, changed = difference(before, read.whole)
        else:
            different: Changes = read.changes
            if not before.would_scatter(len(different)):
                known = before.get_all(list(different))
                pairs = zip(different.items(), known, strict=True)
                different = {key: entry for (key, entry), there in pairs if entry != there}
            index, changes, changed = before.with_changes(different), different, len(different)
        if changed or name not in self._newest:
            self._keep(name, index, changes, changed, read.position)

    def _keep(
        self, name: str, index: ListIndex, changes: Changes | None, changed: int, position: TopicPosition | None
    ) -> None:
        origin = self._feeds[name].origin
        version, index = self._versions.keep(name, index, changes, origin, position, changed)
        before, self._indices[name], self._newest[name] = self._newest.get(name), index, version
        if version.base == version.number and before is not None and not self._keep_all:
            needed = self._batches.oldest_lists().get(name, before.number)
            self._versions.forget(name, min(needed, before.number))

    def _report(self, name: str, fault: str) -> None:
        """Say a fault, unless it was the last thing that was said of the list."""
        if self._said.get(name) != fault:
            self._said[name] = fault
            self._say(f"list {name} stays as it is: {fault}")

    def _note_faults(self) -> None:
        """Write what is wrong with lists, for `buckets lists show`."""
        faults = {name: feed.fault for name, feed in self._feeds.items() if feed.fault is not None}
        if faults != self._faults:
            self._faults = faults
            self._versions.keep_faults(faults)


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


MOST_FAULTS = 20  # So many messages that are not valid are reported one by one between two looks


class ListTopic(WatchedTopic[ListRead]):
    """A feed of the changes in a topic."""

    blank = ListRead
    what = "a list"
    # A topic of a million entries is read in less, also on a busy machine.
    caught_up_within_s = 600.0

    def _take(self, read: ListRead, message: TopicMessage, place: str) -> None:
        key, entry = read_message(message.key, message.value)
        read.changes[key] = entry

    def _refuse(self, read: ListRead, message: TopicMessage, place: str, reason: str) -> None:
        if len(read.faults) < MOST_FAULTS:
            read.faults.append(f"{place}: {reason}")

    def _lose(self, read: ListRead, first: int, end: int) -> None:
        read.faults.append(
            f"the messages from offset {first} to {end - 1} were removed from topic {self._topic} before they were "
            "read, and what they changed is unknown; send those entries again, and keep the topic compacted"
        )


def read_message(key: bytes | None, value: bytes | None) -> tuple[str, Entry | None]:
    """Return a message as a key and its entry; None where it removes the entry.

    Raises:
        ValueError: it is neither; says why.
    """
    name = _text(key, "the key")
    if not name or len(name) > LONGEST_KEY:
        message = f"the key must have 1 to {LONGEST_KEY:,} characters, and has {len(name):,}"
        raise ValueError(message)
    if value is None:
        return name, None
    try:
        fields = json.loads(_text(value, "the value"))
    except json.JSONDecodeError as error:
        message = f"the value of {name!r} is no JSON ({first_line(error)}); send an object, or nothing to remove it"
        raise ValueError(message) from None
    if fields is None:
        return name, None
    if not isinstance(fields, Mapping):
        message = f"the value of {name!r} must be a JSON object such as {{}}, or nothing to remove it"
        raise ValueError(message)
    return name, entry_of(name, fields)


def entry_of(name: str, fields: Mapping[str, Any]) -> Entry:
    """Return an entry from the fields of a message.

    Raises:
        ValueError: one of them is no text, number or truth.
    """
    texts: dict[str, str] = {}
    for field, value in fields.items():
        if isinstance(value, Mapping | list):
            message = f"{field} of {name!r} must be a text, a number, true, false or null"
            raise ValueError(message)
        if value is not None and field != "key":
            texts[field] = value if isinstance(value, str) else json.dumps(value)
    until, author, reason = (texts.pop(name, "") for name in ("until", "author", "reason"))
    until_ms = read_moment_ms(until) if until else None
    kept: dict[str, Any] = {"until_ms": until_ms, "author": author, "reason": reason}
    return Entry(texts, **kept) if texts else Entry(**kept)  # entries without values share an empty mapping


def _text(raw: bytes | None, what: str) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        message = f"{what} is not UTF-8"
        raise ValueError(message) from None

"""Numbers the versions of lists in a separate thread: a batch takes the newest finished version and never waits."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.list_versions import ListVersion
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.delta.whole_table import open_named, query
from buckets.errors import BucketsError, kind_and_line
from buckets.feeds.feed import Feed, ListRead, WatchedFiles, watched_table
from buckets.lists.base import Changes, ListBase
from buckets.lists.index import ListIndex, difference
from buckets.lists.keys import TEXT_KEYS, KeyForm, Match
from buckets.lists.list_file import Key, base_of, read_list
from buckets.rules.rule import Rule

LOOK_EVERY_S = 0.2


class ListBook:
    """Turns what feeds report into numbered versions."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        feeds: Mapping[str, Feed[ListRead]],
        say: Callable[[str], None] = lambda line: None,
        keep_all: bool = False,
    ) -> None:
        """Keep the versions of lists by name; `keep_all` also keeps versions that no batch can need again."""
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

    @property
    def known(self) -> Mapping[str, ListIndex | None]:
        """The newest version of each list by name; None before it is read."""
        return dict.fromkeys(self._feeds) | self._indices

    def start(self) -> None:
        """Read all lists, and start following them."""
        self._stopping.clear()
        self.start_reading()
        if self._feeds:
            self._thread = threading.Thread(target=self._run, name="lists", daemon=True)
            self._thread.start()

    def start_reading(self) -> None:
        """Read all lists as `start` does, but leave it to the caller to call `look`."""
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
        """Stop following the lists."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for feed in self._feeds.values():
            feed.stop()

    def newest(self) -> Mapping[str, int]:
        """Return the newest version of each list, by name."""
        if self._failure is not None:
            raise self._failure
        return {name: version.number for name, version in self._newest.items()}

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Make versions of what the feeds have found since the last look."""
        for name, feed in self._feeds.items():
            try:
                read = self._untaken.pop(name, None) or feed.read()
            except BucketsError as error:
                self._failure = error
                continue
            try:
                self._take(name, read)
            except Exception as error:  # Any fault, such as a full disk, must become visible, and is retried.
                self._untaken[name] = read
                self._report(name, kind_and_line(error))
            else:
                self._said.pop(name, None)
        self._note_faults()

    def _take(self, name: str, read: ListRead) -> None:
        """Make a new version if a feed reports something new."""
        while read.faults:
            self._report(name, read.faults.pop(0))
        form = read.form if read.whole is None else read.whole.form
        before = self._indices.get(name)
        is_new = before is None or (form is not None and before.form != form)
        if before is None or is_new:
            before = ListIndex.of({}, form or TEXT_KEYS)
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
        last = self._newest.get(name)
        if not changed and not is_new:
            return
        origin = self._feeds[name].origin
        version, index = self._versions.keep(name, index, None if is_new else changes, origin, read.position, changed)
        self._indices[name], self._newest[name] = index, version
        if version.base == version.number and last is not None and not self._keep_all:
            needed = self._batches.oldest_lists().get(name, last.number)
            self._versions.forget(name, min(needed, last.number))

    def _report(self, name: str, fault: str) -> None:
        if self._said.get(name) != fault:
            self._said[name] = fault
            self._say(f"list {name} stays as it is: {fault}")

    def _note_faults(self) -> None:
        """Write the faults of lists, for `buckets lists show`."""
        faults = {name: feed.fault for name, feed in self._feeds.items() if feed.fault is not None}
        if faults != self._faults:
            self._faults = faults
            self._versions.keep_faults(faults)


class WholeList(Feed[ListRead]):
    """A feed of the entries in a file or a table, read whole after each change."""

    def __init__(self, path: Path, key: Key = None, match: Match = "text", is_table: bool = False) -> None:
        """Follow a file or a table; `key` and `match` are as for `load_list`."""
        self.origin = str(path)
        self._form: KeyForm | None = None
        self._watched: WatchedFiles[ListBase] = (
            watched_table(path, lambda: read_list_table(path, key, match))
            if is_table
            else WatchedFiles(path, lambda: read_list(path, key, match))
        )

    def start(self, position: TopicPosition | None) -> None:
        """Read the list for the first batch."""
        self._watched.start()
        self._form = self._fault = None

    def read(self, in_force: Sequence[Rule] = ()) -> ListRead:
        """Return the whole list, once after each change."""
        try:
            whole = self._watched.read()
        except BucketsError as error:
            self._fault = error.message
            return ListRead(faults=[error.message])
        if whole is None:
            return ListRead()
        form, self._fault = whole.form, None
        if form.parts:
            self._form = self._form or form
        if form.parts and form != self._form:
            self._fault = f"list {self.origin}: its keys have other columns than before; start again, or put those back"
            return ListRead(faults=[self._fault])
        return ListRead(whole=whole)


def read_list_table(path: Path, key: Key, match: Match = "text") -> ListBase:
    """Read a list from a Delta table."""
    table = open_named(path, lambda why: f"list {path}: is not a Delta table ({why}); make one, or correct the path")
    rows = query(table, "select * from rows", f"list {path}", "restore a version")
    return base_of(rows, key, f"list {path}", match)

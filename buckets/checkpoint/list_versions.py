"""The versions of a job's lists that a batch may still need.

    CHECKPOINT/buckets/lists/NAME/000000015.arrow  a whole list
    CHECKPOINT/buckets/lists/NAME/000000015.json   version 15: that list
    CHECKPOINT/buckets/lists/NAME/000000017.json   version 17: the changes since version 16, and the base, 15
    CHECKPOINT/buckets/lists/faults.json           current faults of lists

The driver writes them; tasks read the versions named in their batch's record. A task that knows version 16 reads only
one more small file for version 17.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import OTHER_CHECKSUM, NumberedRecords, RecordFiles, crc32_of, reader_of
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.clock import epoch_ms
from buckets.files import written_whole
from buckets.lists.base import Changes, Entry, ListBase, open_base
from buckets.lists.index import NO_LISTS, ListIndex, Lists
from buckets.stores.location import local_copy

_WHOLE = "whole_crc32"  # The checksum of the file with the whole list
LONGEST_CHAIN = 500  # The most versions on one base


@dataclass(frozen=True)
class ListVersion:
    """A version of a list."""

    number: int  # from 1
    base: int  # the version that is written whole, on which it is based
    entries: int  # the number of entries
    changed: int  # how many entries differ from the version before
    made_ms: int  # when it was made, in ms since the epoch
    origin: str  # where the list came from
    position: TopicPosition | None  # how far the origin has been read; None if it has no positions


class ListVersions:
    """The versions of the lists of a checkpoint."""

    def __init__(self, checkpoint: Path, batches: BatchRecords | None = None) -> None:
        """Write nothing yet; `batches` are the records of the checkpoint's latest batches."""
        self.checkpoint = checkpoint
        self._records, self._batches = RecordFiles(checkpoint), batches or BatchRecords(checkpoint)
        self._folder = self._records.folder / "lists"
        self._read: dict[str, tuple[ListVersion, ListIndex]] = {}

    def latest(self, name: str) -> ListVersion | None:
        """Return the newest version of a list; None where there is none yet."""
        newest, seen = self._of(name).newest(), self._batches.latest().lists.get(name, 0)
        if seen > (newest or 0):
            raise self._of(name).missing(seen)
        return None if newest is None else self.version(name, newest)

    def is_kept(self, name: str, number: int) -> bool:
        """Return whether a version is kept, as it is while a batch may need it; its base is kept with it."""
        return self._of(name).file(number).exists()

    def version(self, name: str, number: int) -> ListVersion:
        """Return a version of a list."""
        return self._of(name).read(number, reader_of(ListVersion))

    def index(self, name: str, number: int) -> ListIndex:
        """Return a list as of a version. Cost: the versions since the last one read, or since the base."""
        version, known = self.version(name, number), self._read.get(name)
        if known is not None and known[0] == version:
            return known[1]
        if known is None or not self._goes_on(name, known[0], version):
            known = self.version(name, version.base), ListIndex(self._base(name, version.base))
        before, index = known
        changes: dict[str, Entry | None] = {}
        for later in range(before.number + 1, number + 1):
            changes |= self._of(name).read(later, _changes_of)
        index = index.with_changes(changes) if changes else index
        self._read[name] = (version, index)
        return index

    def _goes_on(self, name: str, known: ListVersion, version: ListVersion) -> bool:
        """Return whether a version follows a known one in the same history of this checkpoint."""
        follows = known.base == version.base and known.number < version.number
        return follows and self.version(name, known.number) == known

    def keep(
        self,
        name: str,
        index: ListIndex,
        changes: Changes | None,
        origin: str,
        position: TopicPosition | None,
        changed: int,
    ) -> tuple[ListVersion, ListIndex]:
        """Write the next version of a list: its changes, or the whole list if there are too many.

        `changes` are those since the previous version, None if not known individually; `changed` counts the entries
        that differ. Returns the version, and the index to use from now on.
        """
        before = self.latest(name)
        number = 1 if before is None else before.number + 1
        is_scattered = index.would_scatter(len(index.changes))
        if before is None or changes is None or is_scattered or number - before.base > LONGEST_CHAIN:
            base, changes, file = number, {}, self._base_file(name, number)
            index = index.compacted() if index.changes else index
            with written_whole(file) as partial:
                index.base.write(str(partial))
            copy = local_copy(file)
            index, whole = ListIndex(open_base(str(copy))), {_WHOLE: crc32_of(copy)}
        else:
            base, whole = before.base, dict[str, int]()
        version = ListVersion(number, base, index.entries(), changed, epoch_ms(), origin, position)
        record = {"changes": {key: entry and entry.to_record() for key, entry in changes.items()}}
        self._of(name).write(number, vars(version) | whole | record)
        self._read[name] = (version, index)
        return version, index

    def forget(self, name: str, needed: int) -> None:
        """Delete the versions that no batch needs any more; `needed` is the oldest that a batch may still use."""
        base = self.version(name, needed).base
        for file in list((self._folder / name).glob("[0-9]*.*")):
            if int(file.stem) < base:
                file.unlink(missing_ok=True)

    def keep_faults(self, faults: Mapping[str, str]) -> None:
        """Write the faults of lists that cannot be updated, by name."""
        self._records.write(self._folder / "faults.json", faults)

    def faults(self) -> dict[str, str]:
        """Return the faults of lists by name."""
        return self._records.read_if_there(self._folder / "faults.json", dict) or {}

    def _base(self, name: str, number: int) -> ListBase:
        """Read a whole list. Cost: a checksum of its file."""
        written_crc = self._of(name).read(number, lambda record: (record.get(_WHOLE),))[0]
        file = self._base_file(name, number)
        with self._records.reading(file):
            copy = local_copy(file)
            if written_crc is not None and written_crc != crc32_of(copy):
                raise ValueError(OTHER_CHECKSUM)
            return open_base(str(copy))

    def _of(self, name: str) -> NumberedRecords:
        return NumberedRecords(self._records, self._folder / name)

    def _base_file(self, name: str, number: int) -> Path:
        return NumberedRecords(self._records, self._folder / name, ".arrow").file(number)


def _changes_of(record: Mapping[str, Any]) -> dict[str, Entry | None]:
    return {key: None if entry is None else Entry(**entry) for key, entry in record["changes"].items()}


class PinnedLists(Mapping[str, ListIndex]):
    """The lists of a batch, each read on first use."""

    def __init__(self, versions: ListVersions, pinned: Mapping[str, int]) -> None:
        self._versions, self._pinned = versions, pinned

    def __getitem__(self, name: str) -> ListIndex:
        return self._versions.index(name, self._pinned[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._pinned)

    def __len__(self) -> int:
        return len(self._pinned)

    def __reduce__(self) -> tuple[Callable[..., Lists], tuple[Path, dict[str, int]]]:
        """Pickle as checkpoint and versions: another process reads the lists itself."""
        return lists_in, (self._versions.checkpoint, dict(self._pinned))


_versions_in = lru_cache(maxsize=8)(ListVersions)  # As read by this process so far


def lists_in(checkpoint: Path, pinned: Mapping[str, int]) -> Lists:
    """Return these versions of a checkpoint's lists, shared within this process."""
    return PinnedLists(_versions_in(checkpoint), pinned) if pinned else NO_LISTS

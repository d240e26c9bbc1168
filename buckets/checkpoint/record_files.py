"""Reads and writes the records of a checkpoint, each with a checksum; damage is reported in one line."""

import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from buckets.checkpoint.source_offsets import records_folder
from buckets.errors import BucketsError, first_line
from buckets.files import holds_more_than, numbers_in, replace_whole, sizes_in, write_first, write_whole
from buckets.rules.rule import Rule
from buckets.stores.location import local_copy
from buckets.stores.store_path import StoreError

_FIELD = "checksum"
_BEFORE, _AFTER = b'{"checksum": "', b'"'
_DIGITS = 16
_HEAD = len(_BEFORE) + _DIGITS + len(_AFTER)
_MAGIC = b"BUCKETS1"
OTHER_CHECKSUM = "its checksum is another one"


def seal_json(record: Any, indent: int | None = None, place: str = "") -> bytes:
    """Return an object as JSON with a checksum, valid only at `place`; anywhere if that is empty."""
    plain = msgspec.to_builtins(record, str_keys=True)
    rest = json.dumps(plain, indent=indent).encode()[1:]
    comma = b"" if not plain else b", " if indent is None else b","
    return _head(comma + rest, place) + comma + rest


def unseal_json(data: bytes, place: str = "") -> Any:
    """Return the object that was sealed for this place; raises ValueError for any other bytes."""
    if data[:_HEAD] != _head(data[_HEAD:], place):
        raise ValueError(OTHER_CHECKSUM)
    record = json.loads(data)
    del record[_FIELD]
    return record


def seal_bytes(body: bytes, place: str = "") -> bytes:
    """Return bytes preceded by a checksum, valid only at one place."""
    return _MAGIC + _digest(body, place).encode() + body


def unseal_bytes(data: bytes | memoryview, place: str = "") -> memoryview:
    """Return the bytes that were sealed for this place, without a copy; raises ValueError for any other bytes."""
    view = memoryview(data).cast("B")
    start = len(_MAGIC) + _DIGITS
    if bytes(view[:start]) != _MAGIC + _digest(view[start:], place).encode():
        raise ValueError(OTHER_CHECKSUM)
    return view[start:]


def _head(body: bytes, place: str) -> bytes:
    return _BEFORE + _digest(body, place).encode() + _AFTER


def _digest(body: bytes | memoryview, place: str) -> str:
    digest = hashlib.blake2b(place.encode(), digest_size=_DIGITS // 2)
    digest.update(body)
    return digest.hexdigest()


_Made = TypeVar("_Made")
_WRONG = (ValueError, LookupError, TypeError, AttributeError, OSError, pa.ArrowException)
"""Errors raised when a record's file is missing or malformed."""
MISSING = "it is missing"
RESTORE = "restore it from a copy of the checkpoint, or name a new checkpoint and a new output folder"


def reader_of(kind: type[_Made]) -> Callable[[Any], _Made]:
    """Return a decoder from JSON to a type; fields that the type lacks are ignored."""
    return partial(msgspec.convert, type=kind, str_keys=True)


class RecordFiles:
    """The records of a checkpoint, in `folder`.

    Files are written atomically: an incomplete one was damaged later.
    """

    def __init__(self, checkpoint: Path, remedy: str = RESTORE) -> None:
        """Write nothing yet; `remedy` tells the user what to do about a damaged record."""
        self.folder = records_folder(checkpoint)
        self.checkpoint, self._remedy = checkpoint, remedy

    def write(self, file: Path, record: Any, indent: int | None = None) -> None:
        """Write a record, a mapping or a dataclass, as a JSON object."""
        write_whole(file, self.sealed(file, record, indent))

    def sealed(self, file: Path, record: Any, indent: int | None = None) -> bytes:
        """Return a record as it is written."""
        return seal_json(record, indent, self._place(file))

    def read(self, file: Path, made_of: Callable[[Any], _Made]) -> _Made:
        """Read a record; `made_of` decodes its JSON and never returns None."""
        record = self.read_if_there(file, made_of)
        if record is None:
            raise self.damage(file, MISSING)
        return record

    def read_if_there(self, file: Path, made_of: Callable[[Any], _Made]) -> _Made | None:
        """Read a record as `read` does; None if there is no file."""
        with self.reading(file):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                return None
            return made_of(unseal_json(data, self._place(file)))

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """Report a damaged file in one line."""
        try:
            yield
        except StoreError:
            # The record may be intact; the store's own error says what to do.
            raise
        except _WRONG as error:
            raise self.damage(file, error) from None

    def write_bytes(self, file: Path, body: bytes) -> None:
        """Write a binary record."""
        write_whole(file, seal_bytes(body, self._place(file)))

    def read_bytes(self, file: Path) -> memoryview:
        """Return the bytes of a binary record; call it within `reading`."""
        return unseal_bytes(file.read_bytes(), self._place(file))

    def map_arrow(self, file: Path) -> pa.Table:
        """Memory-map a record that is an Arrow file."""
        with self.reading(file):
            with pa.memory_map(str(local_copy(file))) as mapped:
                body = unseal_bytes(mapped.read_buffer(), self._place(file))
            return pa.ipc.open_file(pa.py_buffer(body)).read_all()

    def _place(self, file: Path) -> str:
        """Return the place of a record, which its checksum includes."""
        return file.relative_to(self.checkpoint).as_posix()

    def damage(self, file: Path, reason: BaseException | str) -> BucketsError:
        """Return the error for a damaged record, with its remedy."""
        if isinstance(reason, FileNotFoundError):
            reason = MISSING
        shown = reason if isinstance(reason, str) else first_line(reason)
        message = (
            f"checkpoint {self.checkpoint} is damaged: {file.relative_to(self.checkpoint)} cannot be read "
            f"({shown}); {self._remedy}"
        )
        return BucketsError(message)


HELD: dict[Path, dict[Path, dict[int, int]]] = {}
"""Sizes of records, by checkpoint (only those in a store to which this process alone writes), kind and number."""
_LISTING = threading.Lock()


class NumberedRecords:
    """The records of a folder with one file ending, named by number."""

    def __init__(
        self, files: RecordFiles, folder: Path, ending: str = ".json", digits: int = 9, is_own: bool = False
    ) -> None:
        """Write nothing yet; numbers in file names have at least `digits` digits.

        `is_own`: only the holder of the checkpoint writes to the folder, so in a store it is listed only once.
        """
        self.folder = folder
        self._files, self._ending, self._digits, self._is_own = files, ending, digits, is_own
        self._kind = folder / ending

    def file(self, number: int) -> Path:
        """Return the path of a record."""
        return self.folder / f"{number:0{self._digits}d}{self._ending}"

    def _known(self) -> dict[int, int] | None:
        """Return the cached sizes of all records by number; None if this process has to ask."""
        with _LISTING:
            held = HELD.get(self._files.checkpoint) if self._is_own else None
            if held is None:
                return None
            if self._kind not in held:
                held[self._kind] = self._sizes()
            return dict(held[self._kind])

    def _sizes(self) -> dict[int, int]:
        return {int(file.stem): size for file, size in sizes_in(self.folder, f"[0-9]*{self._ending}").items()}

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending. Cost: one listing."""
        known = self._known()
        return numbers_in(self.folder, self._ending) if known is None else sorted(known)

    def has(self, number: int) -> bool:
        """Return whether there is a record."""
        known = self._known()
        return self.file(number).is_file() if known is None else number in known

    def sizes(self) -> dict[int, int]:
        """Return the sizes of all records in bytes, by number."""
        known = self._known()
        return self._sizes() if known is None else known

    def newest(self, until: int | None = None) -> int | None:
        """Return the greatest number, or the greatest up to `until`; None if there is no record."""
        return max((number for number in self.numbers() if until is None or number <= until), default=None)

    def read(self, number: int, made_of: Callable[[Any], _Made]) -> _Made:
        """Read a record as `RecordFiles.read` does."""
        return self._files.read(self.file(number), made_of)

    def read_if_there(self, number: int, made_of: Callable[[Any], _Made]) -> _Made | None:
        """Read a record as `read` does; None where there is none."""
        known = self._known()
        return (
            None if known is not None and number not in known else self._files.read_if_there(self.file(number), made_of)
        )

    def write(self, number: int, record: Any, is_durable: bool = True) -> None:
        """Write a record; if not durable, a crash of the machine may restore the previous one."""
        sealed = self._files.sealed(self.file(number), record)
        (write_whole if is_durable else replace_whole)(self.file(number), sealed)
        self.note(number, len(sealed))

    def write_bytes(self, number: int, body: bytes) -> None:
        """Write a binary record."""
        self._files.write_bytes(self.file(number), body)
        self.note(number, len(body))

    def remove(self, *numbers: int) -> None:
        """Remove records that exist."""
        known = self._known()
        for number in numbers:
            if known is None or number in known:
                self.file(number).unlink(missing_ok=True)
                self.note(number, None)

    def note(self, number: int, size: int | None) -> None:
        """Cache the size of a written record, or None for a removed one."""
        with _LISTING:
            known = HELD.get(self._files.checkpoint, {}).get(self._kind)
            if known is not None and size is None:
                known.pop(number, None)
            elif known is not None and size is not None:
                known[number] = size

    def missing(self, number: int) -> BucketsError:
        """Return the error that reports a missing record."""
        return self._files.damage(self.file(number), MISSING)


def crc32_of(file: Path) -> int:
    """Return the checksum of a large file; takes a few ms for 10 MB."""
    with pa.memory_map(str(file)) as mapped:
        return zlib.crc32(mapped.read_buffer())


OWNER = "_buckets.json"  # Exists before any table


class OwnedFolder:
    """A folder that is new, or belongs to a checkpoint."""

    def __init__(self, path: Path, setting: str, life: str | None = None) -> None:
        """Write nothing yet; `setting` names the folder, and `life` is that of its checkpoint, see `JobRecord.life`."""
        self.path = path
        self.owner = path / OWNER
        self._setting = setting
        self._life = life

    def identity(self) -> str | None:
        """Return the identity of the checkpoint that owns the folder; None if there is none."""
        return str(self._written()["checkpoint"]) if self.owner.exists() else None

    def _written(self) -> dict[str, Any]:
        try:
            written = unseal_json(self.owner.read_bytes())
            if isinstance(written, dict) and "checkpoint" in written:
                return written
            reason = "it names no checkpoint"
        except (OSError, ValueError) as error:
            reason = first_line(error)
        message = (
            f"{self._setting} {self.path}: {OWNER} in it, which names the checkpoint that it belongs to, cannot be "
            f"read ({reason}); restore that file from a copy"
        )
        raise BucketsError(message)

    def is_of(self, identity: str | None) -> bool:
        """Return whether it is this checkpoint's (None: new); if not, it is nobody's. BucketsError if another's."""
        # Checked before the owner's file, which a concurrent start writes before any table.
        is_somebodys = holds_more_than(self.path, self.owner)
        fault = None
        if self.owner.exists():
            written = self._written()
            if written["checkpoint"] != identity:
                fault = (
                    "holds tables of another checkpoint, which this one would mix with its own; name a new "
                    f"{self._setting}, or go on with the checkpoint that it belongs to"
                )
            elif written.get("life") != self._life:
                fault = (
                    "goes on with a checkpoint into which the state of this one, or one before it, was imported; go on "
                    "with that, or carry its state back with `buckets state export` and `buckets state import`"
                )
            else:
                return True
        elif is_somebodys:
            fault = f"holds something that this program did not write; name a new folder as {self._setting}"
        if fault is not None:
            message = f"{self._setting} {self.path} {fault}"
            raise BucketsError(message)
        return False

    def take(self, identity: str) -> None:
        """Claim the folder for a checkpoint, unless it has it already."""
        if self.owner.exists() or not write_first(self.owner, self._record(identity)):
            self.is_of(identity)

    def hand_over(self, identity: str) -> None:
        """Claim the folder for a checkpoint, whoever owned it."""
        write_whole(self.owner, self._record(identity))

    def _record(self, identity: str) -> bytes:
        return seal_json({"checkpoint": identity} | ({} if self._life is None else {"life": self._life}))


@dataclass(frozen=True)
class BackfillRequest:
    """A person's request to backfill a rule, made at `time` (ms since the epoch); the rule is or will be in force."""

    rule: Rule
    author: str
    reason: str
    time: int


class BackfillRequests:
    """The requests in a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._records = RecordFiles(checkpoint, "remove it, and apply the rule with --backfill again")
        self._folder = self._records.folder / "backfill_requests"

    def ask(self, request: BackfillRequest) -> None:
        """Write a request, replacing an earlier one for the same rule."""
        rule = request.rule.model_dump(by_alias=True, mode="json")
        self._records.write(self._file(request.rule), vars(request) | {"rule": rule})

    def read(self) -> list[BackfillRequest]:
        """Return all requests, sorted by the name of their rule."""
        read = (self._records.read_if_there(file, _read) for file in self._folder.glob("[!.]*.json"))
        return sorted((request for request in read if request is not None), key=lambda request: request.rule.rule_id)

    def forget(self, request: BackfillRequest) -> None:
        """Remove a request, unless a newer one has replaced it."""
        if request in self.read():
            self._file(request.rule).unlink(missing_ok=True)

    def _file(self, rule: Rule) -> Path:
        return self._folder / f"{hashlib.blake2b(rule.rule_id.encode(), digest_size=8).hexdigest()}.json"


def _read(record: dict[str, Any]) -> BackfillRequest:
    return BackfillRequest(**(record | {"rule": Rule.model_validate(record["rule"])}))

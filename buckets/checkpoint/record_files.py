"""Reads and writes the records of a checkpoint, each with a checksum, and says in one line what is wrong with one."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from buckets.checkpoint.folders import records_folder
from buckets.checkpoint.seal import seal_bytes, seal_json, unseal_bytes, unseal_json
from buckets.errors import BucketsError, first_line
from buckets.files import replace_whole, write_whole
from buckets.stores.local_copy import local_copy
from buckets.stores.store_path import StoreError

_Made = TypeVar("_Made")
_ARROW = b"ARROW1"
"""With what Arrow's files begin, which earlier releases wrote without a checksum."""
_WRONG = (ValueError, LookupError, TypeError, AttributeError, OSError, pa.ArrowException)
"""What is raised by reading a file that is gone, or that nobody has written so."""
MISSING = "it is missing"
RESTORE = "restore it from a copy of the checkpoint, or name a new checkpoint and a new output folder"


class RecordFiles:
    """The records of a checkpoint, in `folder`.

    Files are written whole or not at all: one that is not whole was damaged later.
    """

    def __init__(self, checkpoint: Path, remedy: str = RESTORE) -> None:
        """Write nothing yet; `remedy` says what to do where a record is damaged."""
        self.folder = records_folder(checkpoint)
        self._checkpoint, self._remedy = checkpoint, remedy

    def write(self, file: Path, record: Mapping[str, Any], indent: int | None = None) -> None:
        """Write a record as a JSON object."""
        write_whole(file, self.sealed(file, record, indent))

    def replace(self, file: Path, record: Mapping[str, Any]) -> None:
        """Write a record in the place of another one, as `replace_whole` does."""
        replace_whole(file, self.sealed(file, record))

    def sealed(self, file: Path, record: Mapping[str, Any], indent: int | None = None) -> bytes:
        """Return a record as it is written."""
        return seal_json(record, indent, self._place(file))

    def read(self, file: Path, made_of: Callable[[Any], _Made]) -> _Made:
        """Read a record; `made_of` makes the result from its JSON, which is never None.

        Raises:
            BucketsError: the file is gone or damaged, or the record is none that this release reads.
        """
        record = self.read_if_there(file, made_of)
        if record is None:
            raise self.damage(file, MISSING)
        return record

    def read_if_there(self, file: Path, made_of: Callable[[Any], _Made]) -> _Made | None:
        """Read a record as `read` does; None where there is no file."""
        with self.reading(file):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                return None
            return made_of(unseal_json(data, self._place(file)))

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """Say in one line that a file is damaged, where reading it fails as it does then."""
        try:
            yield
        except StoreError:
            # The record may be whole; it is the store that says what is to be done.
            raise
        except _WRONG as error:
            raise self.damage(file, error) from None

    def write_bytes(self, file: Path, body: bytes) -> None:
        """Write a record that is no JSON."""
        write_whole(file, seal_bytes(body, self._place(file)))

    def map_arrow(self, file: Path) -> pa.Table:
        """Read a record that is a file of Arrow, mapped into memory.

        Raises:
            BucketsError: it is gone or damaged.
        """
        with self.reading(file):
            with pa.memory_map(str(local_copy(file))) as mapped:
                body = unseal_bytes(mapped.read_buffer(), _ARROW, self._place(file))
            return pa.ipc.open_file(pa.py_buffer(body)).read_all()

    def _place(self, file: Path) -> str:
        """Return where a record lies, which is part of its checksum."""
        return file.relative_to(self._checkpoint).as_posix()

    def damage(self, file: Path, reason: BaseException | str) -> BucketsError:
        """Return the error that says in one line that a record is damaged, and what to do."""
        if isinstance(reason, FileNotFoundError):
            reason = MISSING
        shown = reason if isinstance(reason, str) else first_line(reason)
        message = (
            f"checkpoint {self._checkpoint} is damaged: {file.relative_to(self._checkpoint)} cannot be read "
            f"({shown}); {self._remedy}"
        )
        return BucketsError(message)


def crc32_of(file: Path) -> int:
    """Return a checksum of a large file, which costs a few ms for 10 MB."""
    with pa.memory_map(str(file)) as mapped:
        return zlib.crc32(mapped.read_buffer())

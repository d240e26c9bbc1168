"""Records of one kind in a folder, each a file that is called by its number: of a batch, or of a version."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from buckets.checkpoint.record_files import MISSING, RecordFiles
from buckets.errors import BucketsError
from buckets.files import sizes_in

_Made = TypeVar("_Made")


class NumberedRecords:
    """The records of a folder that have one ending; `files` reads and writes them."""

    def __init__(self, files: RecordFiles, folder: Path, ending: str = ".json", digits: int = 9) -> None:
        """Write nothing yet; `digits` says to how many digits a number is filled up in a file's name."""
        self.folder = folder
        self._files, self._ending, self._digits = files, ending, digits

    def file(self, number: int) -> Path:
        """Return the file of a record."""
        return self.folder / f"{number:0{self._digits}d}{self._ending}"

    def numbers(self) -> list[int]:
        """Return the numbers of the records that there are, ascending. Cost: of a listing."""
        return sorted(int(file.stem) for file in self.folder.glob(f"[0-9]*{self._ending}"))

    def sizes(self) -> dict[int, int]:
        """Return by number how large the records are, in bytes."""
        return {int(file.stem): size for file, size in sizes_in(self.folder, f"[0-9]*{self._ending}").items()}

    def newest(self, until: int | None = None) -> int | None:
        """Return the greatest number, up to one if it is given; None where there is no record."""
        return max((number for number in self.numbers() if until is None or number <= until), default=None)

    def read(self, number: int, made_of: Callable[[Any], _Made]) -> _Made:
        """Read a record as `RecordFiles.read` does."""
        return self._files.read(self.file(number), made_of)

    def read_if_there(self, number: int, made_of: Callable[[Any], _Made]) -> _Made | None:
        """Read a record as `read` does; None where there is none."""
        return self._files.read_if_there(self.file(number), made_of)

    def write(self, number: int, record: Mapping[str, Any]) -> None:
        """Write a record as a JSON object."""
        self._files.write(self.file(number), record)

    def replace(self, number: int, record: Mapping[str, Any]) -> None:
        """Write a record in the place of another one, as `RecordFiles.replace` does."""
        self._files.replace(self.file(number), record)

    def remove(self, *numbers: int) -> None:
        """Remove records, if they are there."""
        for number in numbers:
            self.file(number).unlink(missing_ok=True)

    def missing(self, number: int) -> BucketsError:
        """Return the error that says that a record is missing."""
        return self._files.damage(self.file(number), MISSING)

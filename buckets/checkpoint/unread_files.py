"""Files of a source that were gone when their batch was run: Spark lists them as taken, and they are in no batch.

    CHECKPOINT/buckets/unread_files.json   by path, the number under which Spark has listed it

A file that cannot be read ends the job. Who takes it away and starts again goes on without it, and it must not be
looked for in the archive.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buckets.checkpoint.record_files import RecordFiles


class UnreadFiles:
    """The files of a checkpoint that are in no batch."""

    def __init__(self, checkpoint: Path) -> None:
        """Read and write nothing yet."""
        self._records = RecordFiles(checkpoint)
        self._file = self._records.folder / "unread_files.json"

    def read(self) -> dict[str, int]:
        """Return the files, each with the number under which Spark has listed it.

        Raises:
            BucketsError: the record is damaged.
        """
        return self._records.read_if_there(self._file, _numbers) or {}

    def note(self, gone: Mapping[str, int], ended: int) -> None:
        """Note what is gone as the job starts.

        Args:
            gone: by path, the number of each file that is listed and gone, of a batch that has not ended.
            ended: the number of the last batch that has; what was noted for later ones may be back by now.
        """
        before = self.read()
        now = {path: number for path, number in before.items() if number <= ended} | dict(gone)
        if now != before:
            self._records.write(self._file, {"files": now})


def _numbers(record: dict[str, Any]) -> dict[str, int]:
    return {str(path): int(number) for path, number in record["files"].items()}

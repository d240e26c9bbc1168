"""The imports by which the state of a checkpoint came from others, in `CHECKPOINT/buckets/imports.json`.

What was recorded before an import names fields as they were called then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buckets.checkpoint.record_files import RecordFiles


@dataclass(frozen=True)
class Import:
    """An import.

    Attributes:
        batch_id: the last batch before it.
        made_ms: when it was made, in ms since the epoch.
        checkpoint: whose state it was, as a path.
        names: the new names of fields.
        shards: how many there are since then.
        allowed_lateness_ms: since then.
    """

    batch_id: int
    made_ms: int
    checkpoint: str
    names: Mapping[str, str]
    shards: int
    allowed_lateness_ms: int


class Imports:
    """The imports of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._records = RecordFiles(checkpoint)
        self._file = self._records.folder / "imports.json"

    def begin(self) -> None:
        """Leave a sign that an import has begun, before anything of it is written."""
        self._write([])

    def begun(self) -> bool:
        """Return whether an import has ever begun."""
        return self._file.exists()

    def read(self) -> list[Import]:
        """Return all imports, the first one first."""
        return self._records.read_if_there(self._file, _read) or []

    def keep(self, made: Import) -> None:
        """Write an import that follows the others."""
        self._write([*self.read(), made])

    def _write(self, made: Sequence[Import]) -> None:
        self._records.write(self._file, {"imports": [asdict(import_) for import_ in made]}, indent=1)


def _read(record: Any) -> list[Import]:
    # Earlier releases wrote the list alone.
    return [Import(**made) for made in (record if isinstance(record, list) else record["imports"])]

"""The imports by which the state of a checkpoint came from others, in `CHECKPOINT/buckets/imports.json`.

What was recorded before an import names fields as they were called then.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from buckets.checkpoint.folders import records_folder
from buckets.files import write_whole


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
        """Look at a checkpoint; nothing is written yet."""
        self._file = records_folder(checkpoint) / "imports.json"

    def begin(self) -> None:
        """Leave a sign that an import has begun, before anything of it is written."""
        write_whole(self._file, "[]")

    def begun(self) -> bool:
        """Whether an import has ever begun."""
        return self._file.exists()

    def read(self) -> list[Import]:
        """All imports, the first one first."""
        written = json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else []
        return [Import(**each) for each in written]

    def keep(self, made: Import) -> None:
        """Write an import that follows the others."""
        write_whole(self._file, json.dumps([asdict(each) for each in (*self.read(), made)], indent=1))

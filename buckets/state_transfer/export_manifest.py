"""The manifest of an export: what it is of, and how to tell that it is whole.

EXPORT/keys      a Delta table: a row a key, with its head and what policies remember of it
EXPORT/pages     a row a page
EXPORT/shards    a row a shard: what it knows of time
EXPORT/records   a row a file: what the driver and Spark have written beside the state
EXPORT/export.json  the manifest, which is written last
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from buckets.checkpoint.basis import check_release
from buckets.errors import BucketsError, first_line
from buckets.files import write_whole

FORMAT = 1
FILE = "export.json"
KEYS, PAGES, SHARDS, RECORDS = "keys", "pages", "shards", "records"


class TableCheck(BaseModel):
    """How to tell that a table is whole: the number of its rows, and a checksum of them in any order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int
    checksum: int


class ExportManifest(BaseModel):
    """What an export is of: a checkpoint, the record of its job, and its state up to a batch, as tables by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    release: str
    made_ms: int
    checkpoint: str
    job: dict[str, Any]
    batch_id: int
    ruleset_version: int
    tables: dict[str, TableCheck]

    @property
    def identity(self) -> str:
        """The identity of the checkpoint."""
        return str(self.job["id"])

    def write(self, folder: Path) -> None:
        """Write it; with it the export is whole."""
        write_whole(folder / FILE, self.model_dump_json(indent=1))

    @classmethod
    def read(cls, folder: Path) -> "ExportManifest":
        """Read the manifest of an export.

        Raises:
            BucketsError: there is none, it is damaged, or a later release wrote it.
        """
        if not folder.is_dir():
            message = f"there is no folder {folder}; name one that `buckets state export` has written"
            raise BucketsError(message)
        file = folder / FILE
        if not file.exists():
            message = (
                f"{folder} is no whole export: there is no {FILE} in it, which `buckets state export` writes last; "
                "export the state again, into a new folder"
            )
            raise BucketsError(message)
        try:
            written = json.loads(file.read_bytes())
            if written["format"] > FORMAT:
                message = f"has format {written['format']}, and this release reads 1 to {FORMAT}"
                raise BucketsError(message)
            manifest = cls.model_validate(written)
            check_release(manifest.job)
        except BucketsError as error:
            message = f"export {folder} {error.message}; run a release that is as new as the one that wrote it"
            raise BucketsError(message) from error
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            message = f"export {folder} is damaged: {FILE} cannot be read ({first_line(error)}); export the state again"
            raise BucketsError(message) from None
        return manifest

"""The schemas that messages were written with, as a registry has said them, so that it is asked for each only once.

    CHECKPOINT/buckets/schemas/000000017.json  the schema of number 17, and the first batch that has known it

A registry never gives a number to another schema, so what is written once stays right. The batch says what a message
was whose schema the registry did not know yet: no event, also when its batch is read again later.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from buckets.checkpoint.numbered_records import NumberedRecords
from buckets.checkpoint.record_files import RecordFiles
from buckets.files import write_first

AVRO, PROTOBUF = "AVRO", "PROTOBUF"


@dataclass(frozen=True)
class WriterSchema:
    """A schema of a registry.

    Attributes:
        kind: as registries name it: AVRO, JSON or PROTOBUF.
        text: as it is written.
        references: schemas whose types it names, each after those that it names itself.
        names: the names by which they are imported; none in records of earlier releases.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class WriterSchemas:
    """The schemas that a checkpoint knows; workers of a job write them too, each whole or not at all."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._files = RecordFiles(checkpoint)
        self._records = NumberedRecords(self._files, self._files.folder / "schemas")
        self._known: dict[int, tuple[WriterSchema, int]] = {}

    def of(self, number: int, batch_id: int | None) -> WriterSchema | None:
        """Return a schema as a batch has known it; None if it has not.

        Args:
            number: of the schema.
            batch_id: the batch; None for the newest.

        Raises:
            BucketsError: its record is damaged.
        """
        if number not in self._known:
            written = self._records.read_if_there(number, _schema_of)
            if written is None:
                return None
            self._known[number] = written
        schema, first_batch = self._known[number]
        return schema if batch_id is None or batch_id >= first_batch else None

    def numbers(self) -> list[int]:
        """Return the numbers of those that some batch has known. Cost: of a listing."""
        return self._records.numbers()

    def is_known(self, number: int) -> bool:
        """Return whether some batch has known a schema."""
        return self.of(number, None) is not None

    def keep(self, number: int, schema: WriterSchema, batch_id: int) -> None:
        """Write a schema that a batch is the first to know; what is written already stays."""
        file = self._records.file(number)
        write_first(file, self._files.sealed(file, asdict(schema) | {"first_batch": batch_id}))


def _schema_of(record: Mapping[str, Any]) -> tuple[WriterSchema, int]:
    names = tuple(record.get("names", ()))
    return WriterSchema(record["kind"], record["text"], tuple(record["references"]), names), int(record["first_batch"])


@lru_cache(maxsize=8)
def schemas_in(checkpoint: Path) -> WriterSchemas:
    """Return the schemas of a checkpoint, as this process has read them so far."""
    return WriterSchemas(checkpoint)

"""The schemas that messages were written with, kept so that a registry is asked for each only once."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import NumberedRecords, RecordFiles
from buckets.events.decoded import WriterSchema
from buckets.events.messages import PinnedSchemas
from buckets.files import write_first

if TYPE_CHECKING:  # Workers write schemas, and know no job.
    from buckets.config.job import Job


class WriterSchemas:
    """The schemas that a checkpoint knows; workers of a job write them too, each whole or not at all."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._files = RecordFiles(checkpoint)
        self._records = NumberedRecords(self._files, self._files.folder / "schemas")
        self._known: dict[int, tuple[WriterSchema, int]] = {}

    def of(self, number: int, batch_id: int | None) -> WriterSchema | None:
        """Return a schema as a batch has known it, without a batch as the newest has; None if it has not."""
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

    def keep(self, number: int, schema: WriterSchema, batch_id: int) -> None:
        """Write a schema that a batch is the first to know; what is written already stays."""
        file = self._records.file(number)
        write_first(file, self._files.sealed(file, asdict(schema) | {"first_batch": batch_id}))


def _schema_of(record: Mapping[str, Any]) -> tuple[WriterSchema, int]:
    names = tuple(record.get("names", ()))
    return WriterSchema(record["kind"], record["text"], tuple(record["references"]), names), int(record["first_batch"])


_schemas_in = lru_cache(maxsize=8)(WriterSchemas)  # As this process has read them so far

Ask = Callable[[int], WriterSchema | None]  # Asks a registry for the schema of a number; None if it does not know it


@dataclass(frozen=True)
class RegisteredSchemas:
    """The schemas of a checkpoint as a batch knows them; others are asked for and kept, if there is a registry."""

    checkpoint: Path
    ask: Ask | None = None

    def __call__(self, number: int, batch_id: int | None) -> WriterSchema | None:
        """Return the schema of a number; None if the batch does not know it. Raises as `WriterSchemas.of`."""
        known = _schemas_in(self.checkpoint)
        schema = known.of(number, batch_id)
        if schema is None and self.ask is not None and known.of(number, None) is None:
            assert batch_id is not None
            schema = self.ask(number)
            if schema is not None:
                known.keep(number, schema, batch_id)
        return schema


def pinned_schemas(job: "Job") -> Callable[[int], PinnedSchemas]:
    """Return what gives the pinned schemas of a batch, and which topics were not judged."""
    terms = BatchRecords(job.checkpoint).all_terms()
    first = list(terms)
    return lambda batch_id: terms[first[bisect_right(first, batch_id) - 1]]


def newest_pinned(job: "Job") -> PinnedSchemas:
    """Return the pinned schemas of the newest batch; those of the job where there is none yet. Raises likewise."""
    source = job.settings.source
    if "protobuf" not in (source.format, source.key_format):
        return job
    terms = BatchRecords(job.checkpoint).all_terms()
    return terms[max(terms)] if terms else job

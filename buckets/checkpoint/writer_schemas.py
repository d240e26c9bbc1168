"""The schemas that messages were written with, cached so that each is requested from a registry only once."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import NumberedRecords, RecordFiles, reader_of
from buckets.events.decoded import PinnedProtobuf, WriterSchema
from buckets.events.messages import SchemaOf
from buckets.files import write_first

if TYPE_CHECKING:  # Workers write schemas but know no job.
    from buckets.config.job import Job


class WriterSchemas:
    """The schemas in a checkpoint; a job's workers write them too, each atomically."""

    def __init__(self, checkpoint: Path) -> None:
        self._files = RecordFiles(checkpoint)
        self._records = NumberedRecords(self._files, self._files.folder / "schemas")
        self._known: dict[int, WriterSchema] = {}

    def of(self, number: int) -> WriterSchema | None:
        """Return a schema; None if it is unknown."""
        if number not in self._known:
            written = self._records.read_if_there(number, reader_of(WriterSchema))
            if written is None:
                return None
            self._known[number] = written
        return self._known[number]

    def numbers(self) -> list[int]:
        """Return the numbers of the known schemas. Cost: one listing."""
        return self._records.numbers()

    def keep(self, number: int, schema: WriterSchema) -> None:
        """Write a schema, unless it exists."""
        file = self._records.file(number)
        write_first(file, self._files.sealed(file, asdict(schema)))


_schemas_in = lru_cache(maxsize=8)(WriterSchemas)  # As read by this process so far


@dataclass(frozen=True)
class RegisteredSchemas:
    """The schemas in a checkpoint; unknown ones are requested from the registry, if there is one, and kept."""

    checkpoint: Path
    ask: SchemaOf | None = None  # asks a registry

    def __call__(self, number: int) -> WriterSchema | None:
        """Return the schema with a number; None if it is unknown. Raises as `WriterSchemas.of`."""
        known = _schemas_in(self.checkpoint)
        schema = known.of(number)
        if schema is None and self.ask is not None:
            schema = self.ask(number)
            if schema is not None:
                known.keep(number, schema)
        return schema


def newest_protobuf(job: "Job") -> PinnedProtobuf:
    """Return the Protobuf schemas of the newest batch; without a batch, those of the job. Raises likewise."""
    source = job.settings.source
    terms = BatchRecords(job.checkpoint).all_terms() if "protobuf" in (source.format, source.key_format) else {}
    pinned = terms[max(terms)].protobuf if terms else job.protobuf
    return pinned or PinnedProtobuf()

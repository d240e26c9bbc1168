"""Values of results in Avro or Protobuf, as JSON shows them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.checkpoint.writer_schemas import AVRO, WriterSchema, schemas_in
from buckets.events.wire_format import PREFIX_BYTES
from buckets.outputs.binary_messages import BinaryFormat, shown_avro, shown_protobuf
from buckets.outputs.columns import TOPICS

_FIRST_BYTE = b"\0"


@dataclass(frozen=True)
class BinaryValues:
    """What reads values.

    Attributes:
        written_in: the format of those that are no JSON.
        checkpoint: of the audit, which keeps the schemas that it has asked for.
        ask: asks the registry for the schema of a number.
    """

    written_in: BinaryFormat
    checkpoint: Path
    ask: Callable[[int], WriterSchema | None]

    def reads(self, output: str, value: bytes | None) -> bool:
        """Return whether a value is one of results behind the prefix of a registry, which JSON never is."""
        return value is not None and output in TOPICS and value.startswith(_FIRST_BYTE)

    def shown(self, output: str, value: bytes) -> dict[str, Any]:
        """Return what JSON shows of a message of an output.

        Raises:
            ValueError: it cannot be read.
            BucketsError: the registry cannot be asked.
        """
        if len(value) < PREFIX_BYTES:
            message = "ends in the prefix of a schema registry"
            raise ValueError(message)
        content = value[PREFIX_BYTES:]
        if self.written_in == "protobuf":
            return shown_protobuf(output, content)
        number = int.from_bytes(value[1:PREFIX_BYTES])
        schema = self._schema(number)
        if schema is None or schema.kind != AVRO:
            message = f"schema {number} is not one of Avro in the registry"
            raise ValueError(message)
        return shown_avro(output, schema.text, content)

    def _schema(self, number: int) -> WriterSchema | None:
        known = schemas_in(self.checkpoint)
        schema = known.of(number, None)
        if schema is None:
            schema = self.ask(number)
            if schema is not None:
                known.keep(number, schema, 0)
        return schema

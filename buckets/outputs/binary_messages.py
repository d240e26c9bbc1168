"""Results in Avro or Protobuf, by the schemas `schemas/avro/*.avsc` and `schemas/protobuf/*.proto`.

They say what the schemas of JSON say, field by field. Times are timestamps, decimals texts as in JSON, and what JSON
leaves out is null or not there. In Protobuf a number belongs to a field for good, so those files only grow.
"""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from buckets.events.avro.avro_type import AvroType, read_schema
from buckets.events.avro.writer import avro_bytes
from buckets.events.protobuf import proto_schema
from buckets.events.protobuf.proto_schema import ProtobufText, message_named
from buckets.events.protobuf.writer import protobuf_bytes
from buckets.outputs.columns import PUBLISHED
from buckets.resources import resource

BinaryFormat = Literal["avro", "protobuf"]
_ENDS = {"avro": "avsc", "protobuf": "proto"}


def schema_path(output: str, written_in: BinaryFormat) -> Path:
    """Return where the schema of an output lies."""
    return resource(f"schemas/{written_in}/{PUBLISHED[output].contract}.{_ENDS[written_in]}")


@cache
def schema_text(output: str, written_in: BinaryFormat) -> str:
    """Return the schema of an output, as it is registered."""
    return schema_path(output, written_in).read_text(encoding="utf-8")


def binary_message(output: str, written_in: BinaryFormat, shown: dict[str, Any]) -> bytes:
    """Return the value of a message behind the number of its schema, from what JSON shows of it."""
    if written_in == "avro":
        return avro_bytes(_avro(output), shown)
    # The indexes of the first message of a file are one byte, 0.
    text = schema_text(output, written_in)
    return b"\0" + protobuf_bytes(message_named(proto_schema.read_schema(ProtobufText(text)), None), shown)


@cache
def _avro(output: str) -> AvroType:
    return read_schema(schema_text(output, "avro"))

"""The command `buckets schema import`: an event schema made from the schema that messages are written with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from buckets.cli.console import echo
from buckets.config.job import AVRO_SCHEMA, PROTOBUF_SCHEMA, load_registry_settings, protobuf_text
from buckets.errors import BucketsError
from buckets.events.debezium import AFTER, ImportedField, event_schema_text, fields_beside_rows, fields_of_rows
from buckets.events.decoded import AVRO, PROTOBUF, SchemaError, WriterSchema
from buckets.kafka.registry import Registry
from buckets.yaml_file import read_text

_PROTOBUF_FILES = (".proto", ".desc", ".pb", ".binpb", ".protoset")


def import_schema(
    event_id: Annotated[str, typer.Option("--id", metavar="FIELD", help="The field that identifies an event.")],
    event_time: Annotated[str, typer.Option("--time", metavar="FIELD", help="The field that holds its time.")],
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="A subject of the registry, as in transactions-value.")
    ] = None,
    conf: Annotated[
        Path | None, typer.Option(help="A configuration with `kafka.registry`; nothing else of it is read.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A schema file instead of a subject: .avsc, .proto, or descriptors.")
    ] = None,
    message: Annotated[
        str | None, typer.Option(metavar="NAME", help="The message of a Protobuf schema; needed where several fit.")
    ] = None,
    envelope: Annotated[
        Literal["debezium"] | None, typer.Option(help="The envelope around the event, as in source.envelope.")
    ] = None,
) -> None:
    """Print an event schema made from the newest version of a subject, or from a file.

    Each field that fits becomes an attribute or a measure; comments at the end
    name the rest. Remove what no rule needs.

    Examples:
      buckets schema import transactions-value --conf job.yaml --id transactionId --time eventTime > my-schema.yaml
      buckets schema import --file payment.avsc --id transactionId --time eventTime
      buckets schema import bank.public.payments-value --conf job.yaml --envelope debezium --id id --time paid_at
    """
    if file is not None and subject is None:
        name, origin, written = file.stem, *_of_file(file)
    elif file is None and subject is not None and conf is not None:
        name, origin, written = subject.removesuffix("-value"), f"subject {subject}", _newest(conf, subject)
    else:
        usage = "name a SUBJECT with --conf, or a --file"
        raise BucketsError(usage)
    around = "" if envelope is None else AFTER
    try:
        fields = _fields(written, name, message, (f"{around}{event_id}", f"{around}{event_time}"))
    except SchemaError as error:
        fault = f"{origin}: {error}"
        raise BucketsError(fault) from None
    if envelope is not None:
        rows = fields_of_rows(fields)
        if not rows:
            fault = f"{origin} has no field `after`, in which Debezium has the row; leave out --envelope"
            raise BucketsError(fault)
        fields = [*rows, *fields_beside_rows(fields)]
    echo(event_schema_text(fields, name, event_id, event_time), nl=False)


def _of_file(file: Path) -> tuple[str, WriterSchema]:
    """Return how a schema in a file is called, and the schema; its name says of which format it is."""
    if file.suffix in _PROTOBUF_FILES:
        return f"{PROTOBUF_SCHEMA} {file}", WriterSchema(PROTOBUF, protobuf_text(file))
    return f"{AVRO_SCHEMA} {file}", WriterSchema(AVRO, read_text(file, AVRO_SCHEMA))


def _fields(written: WriterSchema, name: str, message: str | None, wanted: tuple[str, str]) -> Sequence[ImportedField]:
    if written.kind == PROTOBUF:
        from buckets.events.protobuf.proto_schema import read_schema as read_protobuf
        from buckets.events.protobuf.wanted import imported_fields as protobuf_fields

        return protobuf_fields(read_protobuf(written), message, wanted)
    if message is not None:
        fault = "--message: goes with a schema of Protobuf; leave it out"
        raise BucketsError(fault)
    from buckets.events.avro.avro_events import imported_fields as avro_fields
    from buckets.events.avro.avro_type import read_schema

    return avro_fields(read_schema(written.text, written.references), name)


def _newest(conf: Path, subject: str) -> WriterSchema:
    settings = load_registry_settings(conf)
    newest = Registry(settings).newest(subject)
    if newest is None:
        message = f"registry {settings.url}: has no subject {subject}; that of a topic's values is TOPIC-value"
        raise BucketsError(message)
    if newest.schema.kind not in (AVRO, PROTOBUF):
        message = f"registry {settings.url}: {subject} is of type {newest.schema.kind}, not {AVRO} or {PROTOBUF}"
        raise BucketsError(message)
    return newest.schema

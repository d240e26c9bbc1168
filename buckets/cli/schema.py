"""The command `buckets schema import`: an event schema made of one that messages are written with."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.checkpoint.writer_schemas import AVRO, WriterSchema
from buckets.cli.console import echo
from buckets.config.job import AVRO_SCHEMA, load_registry_settings
from buckets.errors import BucketsError
from buckets.events.avro.avro_type import AvroSchemaError, read_schema
from buckets.events.avro.event_schema import event_schema_text
from buckets.kafka.registry import Registry
from buckets.yaml_file import read_text

schema_app = typer.Typer(help="Make an event schema of one in Avro.", rich_markup_mode=None)


@schema_app.callback()
def _of_schemas() -> None:
    """Make an event schema of one in Avro."""


@schema_app.command("import")
def import_schema(
    event_id: Annotated[str, typer.Option("--id", metavar="FIELD", help="The field that identifies an event.")],
    event_time: Annotated[str, typer.Option("--time", metavar="FIELD", help="The field that is its time.")],
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="A subject of the registry, as in transactions-value.")
    ] = None,
    conf: Annotated[
        Path | None, typer.Option(help="A configuration with `kafka.registry`; nothing else of it is looked at.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="An Avro schema (.avsc), in place of a subject.")] = None,
) -> None:
    """Print an event schema made of the newest version of a subject, or of a file.

    Each field that can be one becomes an attribute or a measure; comments at
    the end name the others. Remove what no rule needs.

    \b
    Examples:
      buckets schema import transactions-value --conf job.yaml --id transactionId --time eventTime > my-schema.yaml
      buckets schema import --file payment.avsc --id transactionId --time eventTime
    """  # noqa: D301 - click needs the backspace itself
    if (subject is None) == (file is None) or (subject is not None and conf is None):
        message = "name a SUBJECT with --conf, or a --file"
        raise BucketsError(message)
    if file is not None:
        name, origin, written = file.stem, f"{AVRO_SCHEMA} {file}", WriterSchema(AVRO, read_text(file, AVRO_SCHEMA))
    else:
        assert subject is not None
        assert conf is not None
        name, origin, written = subject.removesuffix("-value"), f"subject {subject}", _newest(conf, subject)
    try:
        root = read_schema(written.text, written.references)
    except AvroSchemaError as error:
        message = f"{origin}: {error}"
        raise BucketsError(message) from None
    echo(event_schema_text(root, name, event_id, event_time), nl=False)


def _newest(conf: Path, subject: str) -> WriterSchema:
    """Return the schema of the newest version of a subject.

    Raises:
        BucketsError: there is none, or it is none of Avro.
    """
    settings = load_registry_settings(conf)
    newest = Registry(settings).newest(subject)
    if newest is None:
        message = f"registry {settings.url}: has no subject {subject}; that of a topic's values is TOPIC-value"
        raise BucketsError(message)
    if newest.schema.kind != AVRO:
        message = f"registry {settings.url}: {subject} is of type {newest.schema.kind}, not {AVRO}"
        raise BucketsError(message)
    return newest.schema

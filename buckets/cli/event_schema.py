"""The option `--schema`: the event schema of a command, which is the same in all where it is left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal
from buckets.config.engine import EngineSettings
from buckets.config.job import load_schema_and_engine
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema, load_event_schema
from buckets.resources import DEFAULT_SCHEMA

SchemaOption = Annotated[
    Path | None, typer.Option(help="The event schema; without it that of --conf, or schemas/transaction.yaml.")
]


@contextmanager
def event_schema(schema: Path | None, conf: Path | None = None) -> Iterator[tuple[EventSchema, EngineSettings]]:
    """Read the event schema and the settings that options name; what does not fit the schema is found inside the block.

    If the default is taken, that is said in an error about the schema, and on a terminal at the end of the block.

    Args:
        schema: the event schema; None for that of the configuration, or the default.
        conf: a configuration, of which `schema` and `engine` are used.

    Raises:
        BucketsError: a file cannot be read, or is not valid.
    """
    if conf is not None:
        of_conf, engine = load_schema_and_engine(conf)
        yield (of_conf if schema is None else load_event_schema(schema)), engine
        return
    chosen = load_event_schema(schema or DEFAULT_SCHEMA)
    try:
        yield chosen, EngineSettings()
    except BucketsError as error:
        if schema is not None or "event schema" not in error.message:
            raise
        message = f"{error.message}; that is the default, name yours with --schema"
        raise BucketsError(message) from None
    console = Terminal(stderr=True)
    if schema is None and console.is_terminal:
        console.say(f"event schema {chosen.name} is taken, the default; --schema names another one")

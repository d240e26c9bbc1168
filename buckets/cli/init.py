"""The command `buckets init`: a folder with all that a first job needs."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import echo
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import GeneratorSettings, write
from buckets.generator import generate as generate_stream
from buckets.resources import DEFAULT_SCHEMA, resource
from buckets.stores.location import in_file_system

_FILES = {"conf.yaml": "conf/first/conf.yaml", "rules.yaml": "conf/first/rules.yaml"}
_PAYMENTS = GeneratorSettings(transactions=5_000, days=7, rows_per_file=1_000)


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Where to put it: a new folder, or an empty one.", callback=in_file_system
        ),
    ],
) -> None:
    """Make a folder with a configuration, an event schema, rules with tests, and payments to try them on.

    \b
    Examples:
      buckets init fraud
      cd fraud && buckets run conf.yaml && buckets alerts tables
    """  # noqa: D301 - click needs the backspace itself
    texts = {name: resource(source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    texts["schema.yaml"] = DEFAULT_SCHEMA.read_text(encoding="utf-8")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            message = f"folder {folder}: holds something already; name another one"
            raise BucketsError(message)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text)
    except OSError as error:
        message = f"folder {folder}: cannot be written ({error.strerror}); name another one"
        raise BucketsError(message) from None
    written = write(generate_stream(_PAYMENTS), folder / "payments")
    echo(
        f"{folder} has a configuration, an event schema, rules with tests, and {written.line_count:,} payments. Go on:"
    )
    for command in (
        f"cd {shlex.quote(str(folder))}",
        "buckets rules test rules.yaml --schema schema.yaml",
        "buckets run conf.yaml",
        "buckets alerts tables",
        "buckets console conf.yaml",
    ):
        echo(f"  {command}")

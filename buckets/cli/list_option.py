"""The option `--list`: lists that rules look into, in files."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.errors import BucketsError
from buckets.expressions.expression import LIST_NAME
from buckets.lists.index import ListIndex
from buckets.lists.list_file import load_list
from buckets.stores.location import location

ListOption = Annotated[
    list[str] | None,
    typer.Option("--list", metavar="NAME=FILE", help="A list that rules look into, in a CSV or YAML file."),
]


def given_lists(options: list[str] | None) -> dict[str, ListIndex]:
    """Read the lists that options `--list` name, by name.

    Raises:
        BucketsError: an option cannot be read, or a file is no list.
    """
    return {name: load_list(file) for name, file in list_files(options).items()}


def list_files(options: list[str] | None) -> dict[str, Path]:
    """Return the files of lists as options `--list` name them, by name.

    Raises:
        BucketsError: an option cannot be read.
    """
    files: dict[str, Path] = {}
    for option in options or []:
        name, separator, file = option.partition("=")
        if not separator or LIST_NAME.fullmatch(name) is None or not file:
            message = f"--list {option}: write NAME=FILE, as in payroll=payroll.csv; a name has letters, digits and _"
            raise BucketsError(message)
        if name in files:
            message = f"--list {option}: list {name!r} is given twice; leave one of them out"
            raise BucketsError(message)
        files[name] = location(file)
    return files

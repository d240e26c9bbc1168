"""The option `--list NAME=FILE`: lists that rules look into, in files."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.errors import BucketsError
from buckets.expressions.expression import LIST_NAME
from buckets.lists.list_file import read_list

ListOption = Annotated[
    list[str] | None,
    typer.Option("--list", metavar="NAME=FILE", help="A list that rules look into, in a CSV or YAML file."),
]


def list_files(given: list[str] | None) -> dict[str, Path]:
    """The files of lists, by name; each is seen to be one.

    Raises:
        BucketsError: one is not, or a name is none or is given twice.
    """
    files: dict[str, Path] = {}
    for each in given or []:
        name, separator, file = each.partition("=")
        if not separator or LIST_NAME.fullmatch(name) is None or not file:
            message = f"--list {each}: write NAME=FILE, as in payroll=payroll.csv; a name has letters, digits and _"
            raise BucketsError(message)
        if name in files:
            message = f"--list {each}: list {name!r} is given twice; leave one of them out"
            raise BucketsError(message)
        files[name] = Path(file)
        read_list(files[name])
    return files

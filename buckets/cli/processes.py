"""The option `--processes`: how many score history."""

import os
from typing import Annotated

import typer

LARGE_ROWS = 1_000_000
"""With fewer rows the start of processes takes longer than they save."""

Processes = Annotated[
    int | None, typer.Option(min=1, help="How many score; as many as there are cores, fewer for little history.")
]


def processes_for(rows: int, asked: int | None) -> int:
    """How many processes score history.

    Args:
        rows: how much of it there is, about.
        asked: as the option says.
    """
    return asked or (1 if rows < LARGE_ROWS else os.cpu_count() or 1)

"""What a demo has caught of the planted fraud, as a table."""

from collections.abc import Sequence
from typing import Any

from rich import box

from buckets.cli.console import TextTable
from buckets.generator.recall import recall_rows


def recall_table(truth: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]]) -> TextTable:
    """Return how many cases of each pattern were planted and caught."""
    numbers = ("Planted", "Caught", "At once", "Others")
    columns = ("Pattern", "Rule", *numbers)
    table = TextTable("What was caught of the planted fraud", columns, numbers, whole=("Pattern", "Rule"))
    table.box, table.padding = box.SIMPLE, (0, 1, 0, 0)
    for row in recall_rows(truth, alerts):
        table.add_row(*row)
    return table

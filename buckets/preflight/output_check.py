"""Check that the tables in a job's output folder are the job's own, and can hold its values."""

from pathlib import Path

import pyarrow as pa

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from buckets.delta.whole_table import is_made, last_number, open_table
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS
from buckets.outputs.columns import ALERTS, BATCHES, EVALUATIONS, TABLES


def check_output(folder: OwnedFolder, checkpoint: Checkpoint, identity: str | None) -> None:
    """Refuse an output folder of another checkpoint, or one that lacks a table which batches have filled."""
    if not folder.is_of(identity) and identity is not None and checkpoint.batches.newest() is not None:
        message = (
            f"output.path {folder.path} does not hold the results so far of checkpoint {checkpoint.path}; "
            "go back to its output folder, or name a new checkpoint"
        )
        raise BucketsError(message)
    newest = checkpoint.batches.latest_done()[0]
    if identity is None or newest is None:
        return
    for name in TABLES:
        table = folder.path / name
        if not is_made(table) and (name != EVALUATIONS or table.exists()):
            message = (
                f"output.path {folder.path} does not hold the table {name} that checkpoint {checkpoint.path} has "
                "filled; put it back, or name a new checkpoint and a new output folder"
            )
            raise BucketsError(message)
    batches = folder.path / BATCHES
    last = last_number(batches, f"{identity}-{BATCHES}")
    if last is None or last < newest:
        message = (
            f"table {batches} ends with batch {'none' if last is None else last}, and checkpoint {checkpoint.path} "
            f"with batch {newest}: the end of its log is gone; restore the table from a copy"
        )
        raise BucketsError(message)


def check_digits(folder: Path, schema: EventSchema, setting: str = "output.path") -> None:
    """Refuse a schema whose values have more digits than the existing tables, as the first start created them."""
    if not is_made(folder / ALERTS):
        return
    stored = pa.schema(open_table(folder / ALERTS).schema().to_arrow()).field("value").type
    digits = stored.scale - AVERAGE_EXTRA_DIGITS
    for name, measure in schema.measures.items():
        if measure.scale > digits:
            message = (
                f"{setting} {folder} holds values of {digits} digits, and measure {name} has a scale of "
                f"{measure.scale}; give it {digits} at most, or name a new checkpoint and a new output folder"
            )
            raise BucketsError(message)

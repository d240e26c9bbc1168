"""Whether the tables that lie in a job's output folder are the job's own, and can hold its values."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.owned_folder import OwnedFolder
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS
from buckets.outputs.columns import ALERTS


def check_output(folder: OwnedFolder, checkpoint: Checkpoint, identity: str | None) -> None:
    """See that an output folder is new and the checkpoint too, or that the two belong together.

    Raises:
        BucketsError: they do not, or the folder holds something else.
    """
    if not folder.is_of(identity) and identity is not None and checkpoint.batches.has_run():
        message = (
            f"output.path {folder.path} does not hold the results so far of checkpoint {checkpoint.path}; "
            "go back to its output folder, or name a new checkpoint"
        )
        raise BucketsError(message)


def check_digits(folder: Path, schema: EventSchema) -> None:
    """See that the values of a schema fit into the tables that are there: their digits are those of the first start.

    Raises:
        BucketsError: a measure has more.
    """
    if not DeltaTable.is_deltatable(str(folder / ALERTS)):
        return
    stored = pa.schema(open_table(folder / ALERTS).schema().to_arrow()).field("value").type
    digits = stored.scale - AVERAGE_EXTRA_DIGITS
    for name, measure in schema.measures.items():
        if measure.scale > digits:
            message = (
                f"output.path {folder} holds values of {digits} digits, and measure {name} has a scale of "
                f"{measure.scale}; give it {digits} at most, or name a new checkpoint and a new output folder"
            )
            raise BucketsError(message)

"""What a batch costs on one machine: constants that `bench/size.py` has fitted, in a file."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from buckets.config.job import of_configuration
from buckets.yaml_file import load_model

FITTED = Path(__file__).with_name("constants.yaml")
"""Those that come with the program."""
_LARGEST = 1e15
Cost = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]


class _Numbers(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Costs(_Numbers):
    """What one of each costs, in microseconds of CPU or in bytes; see `Amounts`."""

    batches: Cost = 0.0
    tasks: Cost = 0.0
    shards: Cost = 0.0
    cells: Cost = 0.0
    rows: Cost = 0.0
    texts: Cost = 0.0
    copies: Cost = 0.0
    values: Cost = 0.0
    touches: Cost = 0.0
    keys: Cost = 0.0
    kilobytes: Cost = 0.0
    features: Cost = 0.0
    conditions: Cost = 0.0
    cold: Cost = 0.0
    moved: Cost = 0.0
    visits: Cost = 0.0
    pages: Cost = 0.0


class StoredBytes(_Numbers):
    """What the state of a key takes, in bytes.

    Attributes:
        head: of each key, beside itself and its events.
        cell: a single event, beside its id and its values.
        track: a value of a single event.
        bucket: a bucket of events.
        bucket_track: what a bucket keeps of one track.
        slot: a key in the schedule of eviction, beside itself.
        entry: what an entry in memory takes beside its key and value.
    """

    head: Cost
    cell: Cost
    track: Cost
    bucket: Cost
    bucket_track: Cost
    slot: Cost
    entry: Cost


class MemoryBytes(_Numbers):
    """What processes take, in bytes.

    Attributes:
        driver: the process that starts the job.
        jvm: Java.
        worker: a worker of Python, one for each core, beside what all of a machine share.
        touch: of a batch, an event in a grouping.
    """

    driver: Cost
    jvm: Cost
    worker: Cost
    touch: Cost


class Constants(_Numbers):
    """All constants of a machine.

    Attributes:
        machine: on which they were fitted.
        fitted: when, and by which command.
        python_us: CPU of the driver and the workers.
        jvm_us: CPU of Java, without its compilers and without collecting garbage.
        collector: what collecting garbage adds to that, as a share of it.
        put_bytes: given to the state store, and so written into the checkpoint.
        stored: what the state of a key takes.
        memory: what processes take.
        disk_bytes_s: what the disk has taken in a second.
    """

    machine: dict[str, str | int | float | None]
    fitted: str
    python_us: Costs
    jvm_us: Costs
    collector: Cost
    put_bytes: Costs
    stored: StoredBytes
    memory: MemoryBytes
    disk_bytes_s: Annotated[float, Field(gt=0, le=_LARGEST, allow_inf_nan=False)]


@of_configuration()
def read_constants(path: Path = FITTED) -> Constants:
    """Read a file of constants.

    Raises:
        ConfigurationError: it cannot be read, or is none; says where and why.
    """
    return load_model(path, Constants, "constants")

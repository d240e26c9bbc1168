"""The two folders of a checkpoint: this project's records, and what Spark keeps itself."""

from pathlib import Path


def records_folder(checkpoint: Path) -> Path:
    """Return where this project's records are."""
    return checkpoint / "buckets"


def spark_folder(checkpoint: Path) -> Path:
    """Return where Spark keeps offsets, commits and state."""
    return checkpoint / "spark"


def lock_file(checkpoint: Path) -> Path:
    """Return what says who uses it: a file that is locked, or in an object store the record of a lease."""
    return records_folder(checkpoint) / "in_use"

"""The two folders of a checkpoint: this project's records, and what Spark keeps itself."""

import re
from pathlib import Path

from buckets.errors import BucketsError

_QUOTED = re.compile(r"[^A-Za-z0-9\u00a1-\U0010ffff_!.~'()*,;:$&+=@/-]")
"""What a path has and its address has in another form, under which Spark's reader of states looks for the path."""


def records_folder(checkpoint: Path) -> Path:
    """Return where this project's records are."""
    return checkpoint / "buckets"


def spark_folder(checkpoint: Path) -> Path:
    """Return where Spark keeps offsets, commits and state."""
    return checkpoint / "spark"


def check_readable(checkpoint: Path) -> None:
    """See that Spark's reader of states finds a checkpoint by its path; a job does always.

    Raises:
        BucketsError: it has a character by which it does not.
    """
    quoted = _QUOTED.search(str(checkpoint))
    if quoted is not None:
        message = (
            f"checkpoint {checkpoint}: Spark reads the state of no checkpoint with {quoted[0]!r} in its path; copy it "
            "to a path without, and name that"
        )
        raise BucketsError(message)


def lock_file(checkpoint: Path) -> Path:
    """Return what says who uses it: a file that is locked, or in an object store the record of a lease."""
    return records_folder(checkpoint) / "in_use"

"""Where the jars lie."""

import os
import sys
from pathlib import Path

from buckets.errors import BucketsError, first_line
from buckets.user_caches import own_cache

FOLDER_VARIABLE = "BUCKETS_JARS"


def jar_folder() -> Path:
    """Return the folder of the jars: what BUCKETS_JARS names, else with the user's caches, or in the environment."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).absolute()
    return own_cache("jars") or Path(sys.prefix, "share", "buckets", "jars")


def unwritable(folder: Path, error: OSError) -> BucketsError:
    """Return what to say of a folder that jars cannot be written to."""
    return BucketsError(
        f"cannot write jars to {folder} ({first_line(error)}): set {FOLDER_VARIABLE} to a folder that can be written"
    )

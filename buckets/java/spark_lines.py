"""Which versions of Spark can be used."""

import sys

from buckets.errors import BucketsError

LOCKED_SPARK, SPARK_LINES = "4.2.1", ("4.1", "4.2", "4.3")
"""The pyspark that `bin/setup` installs, and of which lines it may be another one."""


def line_of(version: str) -> str:
    """Return the line of any version of pyspark, as in "4.2"."""
    return ".".join(version.split(".")[:2])


def spark_line(version: str) -> str:
    """Return the line of a version of pyspark; raises BucketsError if it cannot be used."""
    line = line_of(version)
    if line not in SPARK_LINES:
        message = (
            f"pyspark {version} of {sys.prefix} cannot be used: it has to be of {SPARK_LINES[0]} to {SPARK_LINES[-1]}; "
            f"install pyspark=={LOCKED_SPARK}"
        )
        raise BucketsError(message)
    return line

"""What text and Parquet files have in common as streams: which files are read, and in which order."""

import os
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from buckets.config.source import FileSource
from buckets.events.arrivals import SOURCE, SOURCE_ORDER
from buckets.stores.store_path import StorePath

_PATH = "_metadata.file_path"


def file_reader(spark: SparkSession, most_files: int) -> DataStreamReader:
    """Return a reader of files that takes each file in and below its folder once, however old it is.

    Args:
        spark: the session.
        most_files: how many files one micro-batch takes at most.
    """
    return (
        spark.readStream.option("maxFilesPerTrigger", most_files)
        # By default a file that is a week older than the newest one is passed over, and nobody is told.
        .option("maxFileAge", "10000000d")
        # Otherwise a folder called `day=1` would turn everything into a partitioned table, without the other files.
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "[!_.]*")
    )


def of_source(source: FileSource) -> Column:
    """Return whether a row's file is read, by its path alone; Spark lists the others as taken, and opens none."""
    folder = source.folder
    in_store = isinstance(folder, StorePath)
    depth = len((folder if in_store else Path(os.path.normpath(folder))).parts) - 1
    below = "([^_./][^/]*/)*" if source.subfolders else ""
    return F.col(_PATH).rlike(f"^{folder.parts[0] if in_store else 'file:'}/*([^/]+/){{0,{depth}}}{below}[^/]+$")


def file_columns(folder: Path) -> list[Column]:
    """Return the columns that say which file of a folder a row is in, and what orders files, as `modified_ms` does."""
    modified_ms = F.unix_millis("_metadata.file_modification_time")
    if isinstance(folder, StorePath):
        modified_ms -= modified_ms % 1000
    return [F.col(_PATH).alias(SOURCE), modified_ms.alias(SOURCE_ORDER)]

"""Write a checkpoint's stores after its last batch to files: `python -m … CHECKPOINT FOLDER`.

It runs as a separate process, so that the reader of the files needs no JVM.
"""

import sys
from pathlib import Path

from buckets.errors import BucketsError
from buckets.exit_codes import DONE
from buckets.spark.session import start_session
from buckets.spark.state_reader import last_ended, read_stored
from buckets.stores.location import location

_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A run of seconds ends before Java's second compiler pays off: without it Spark starts in two thirds of the time."""


def main(checkpoint: str, folder: str) -> int:
    """Write the entries of all stores as Parquet, with log segments unchanged, and print the number of their batch."""
    place = location(checkpoint)
    java = {"spark.driver.extraJavaOptions": _BRIEF}
    spark = start_session("buckets serve", shards=2, extra=java, checkpoint=place, places=[Path(folder)])
    batch_id = last_ended(place)  # The running job deletes state older than some batches
    read_stored(spark, place, batch_id).write.option("compression", "none").parquet(folder)
    sys.stdout.write(f"{batch_id}\n")
    spark.stop()
    return DONE


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except BucketsError as error:
        sys.exit(error.message)

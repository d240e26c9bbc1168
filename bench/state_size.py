"""How many bytes of state a checkpoint holds, as a line of JSON.

    python bench/state_size.py CHECKPOINT

For each state variable that Spark's metadata lists: how many entries it has, and the sum of the lengths of their keys
and values, before any compression. Beside it, what the state folder takes on disk: snapshots and changes of several
versions.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from buckets.spark.session import start_session


def state_names(spark: SparkSession, query: Path) -> list[str]:
    """The state variables of a query, by its metadata."""
    metadata = spark.read.format("state-metadata").option("path", str(query)).load()
    properties = metadata.select("operatorProperties").first()
    return [variable["stateName"] for variable in json.loads(properties.operatorProperties)["stateVariables"]]


def lengths(schema: StructType) -> Column:
    """The bytes of an entry of a `binary -> binary` map state."""
    names = [f"{side}.{field.name}" for side in ("user_map_key", "user_map_value") for field in schema[side].dataType]
    return sum((F.length(name) for name in names), F.lit(0)).cast("long")


def main() -> None:
    """Read, and print."""
    query = Path(sys.argv[1])
    spark = start_session("state size", 2)
    # Without this the reader finds no coordinator of state stores to report to.
    _ = spark.streams.active
    states = {}
    for name in state_names(spark, query):
        reader = spark.read.format("statestore").option("path", str(query)).option("stateVarName", name)
        entries = reader.load()
        row = entries.agg(F.count("*").alias("entries"), F.sum(lengths(entries.schema)).alias("bytes")).first()
        states[name] = {"entries": row.entries, "bytes": row.bytes or 0}
    on_disk = sum(path.stat().st_size for path in (query / "state").rglob("*") if path.is_file())
    print(json.dumps({"states": states, "disk_bytes": on_disk}))


if __name__ == "__main__":
    main()

"""What the Spark of a session lacks or leaks: found at the start of a query, and said in one line."""

import re

import pyspark

from buckets.errors import BucketsError
from buckets.java.spark_lines import LOCKED_SPARK, spark_line
from buckets.spark.session_folder import has_class

_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_TIGHT = {"4.1": 4, "4.2": 1}
"""From which version of a line on Spark closes the sockets of all tasks."""


def check_kafka(place: str) -> None:
    """See that the session can read topics, `place` in words."""
    if not has_class(_KAFKA):
        message = (
            f"{place}: Spark {pyspark.__version__} finds no Kafka connector among its jars, and none is published for "
            f"4.3: install pyspark=={LOCKED_SPARK}, or add a connector's jars to spark.jars"
        )
        raise BucketsError(message)


def check_delta(place: str) -> None:
    """See that Spark can read a Delta table, or add to one."""
    if spark_line(pyspark.__version__) == "4.3":
        message = (
            f"{place}: Spark {pyspark.__version__} cannot read Delta tables or append to them, as Delta is published "
            f"for Spark 4.2 and earlier: install pyspark=={LOCKED_SPARK}, or use files"
        )
        raise BucketsError(message)


def leak() -> str | None:
    """Return what a query that runs for long leaks, and what to do about it; None where Spark leaks nothing."""
    line, patch = spark_line(pyspark.__version__), re.match(r"\d+\.\d+\.(\d+)", pyspark.__version__)
    if line not in _TIGHT or patch is None or int(patch[1]) >= _TIGHT[line]:
        return None
    return (
        f"Spark {pyspark.__version__} leaves a socket open for each stateful task of a batch (SPARK-58932), until a "
        f"process may open no more: install pyspark=={line}.{_TIGHT[line]}, or start the query again from time to time"
    )

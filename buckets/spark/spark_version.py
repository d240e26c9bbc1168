"""What the Spark of a session lacks: found at the start of a query, and said in one line."""

import pyspark

from buckets.errors import BucketsError
from buckets.java.spark_lines import LOCKED_SPARK, spark_line
from buckets.spark.session_folder import has_class

_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def check_own_jar() -> None:
    """See that the session can keep state, with classes of ours."""
    if not has_class("buckets.StateTasks"):
        message = (
            "the session finds no jar of buckets, without which no state is kept: make it with "
            "`SparkSession.builder.config(map=buckets.spark.session_settings())`, or give spark-submit as --jars what "
            "`python -m buckets.java.jars` prints"
        )
        raise BucketsError(message)


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

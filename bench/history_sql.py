"""The rules of `history_job.py` as plain Spark SQL over an archive: window functions with RANGE BETWEEN INTERVAL.

    python bench/history_sql.py TABLE OUT REPEATS

Each key's rules are one query, so that its rows are sorted once; it reads the columns that it needs and no others, and
sums whole cents. Adaptive execution is on. The first day is queried before anything is timed. A line of JSON for each
repeat says how long each query took; the ids of the events that fire are left in OUT, one Parquet folder a rule.
"""

import json
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from history_job import RULES
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from buckets.duration import parse_duration_ms
from buckets.spark.session import start_session

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "8g",
    "spark.sql.adaptive.enabled": True,
    "spark.sql.adaptive.coalescePartitions.enabled": True,
    "spark.sql.shuffle.partitions": 64,
    "spark.sql.files.maxPartitionBytes": str(128 * 2**20),
    "spark.sql.files.openCostInBytes": str(4 * 2**20),
}
AGGREGATES = {"sum": "sum(cents)", "count": "count(*)", "avg": "avg(cents)"}
DAY_MS = 86_400_000


def interval(window: str) -> str:
    """A length as SQL writes it."""
    length_ms = parse_duration_ms(window)
    return f"INTERVAL {length_ms // 60_000} MINUTES"


def query(by: list[str], rules: list[dict[str, Any]]) -> str:
    """The events at which rules of one key fire, each with a column a rule."""
    columns, fired = [], []
    for number, rule in enumerate(rules):
        frame = f"RANGE BETWEEN {interval(rule['window'])} PRECEDING AND CURRENT ROW"
        over = f"PARTITION BY {', '.join(by)} ORDER BY eventTime {frame}"
        limit = rule["limit"] * (1 if rule["function"] == "count" else 100)
        columns.append(f"{AGGREGATES[rule['function']]} OVER ({over}) > {limit} AS r{number}")
        fired.append(f"r{number}")
    amounts = ", CAST(paymentAmount * 100 AS BIGINT) AS cents" if any(r["function"] != "count" for r in rules) else ""
    inner = f"SELECT transactionId, eventTime, {', '.join(by)}{amounts} FROM events WHERE _fault IS NULL"
    windows = f"SELECT transactionId, {', '.join(columns)} FROM ({inner})"
    return f"SELECT transactionId, {', '.join(fired)} FROM ({windows}) WHERE {' OR '.join(fired)}"


def fired(spark: SparkSession, by: list[str], rules: list[dict[str, Any]]) -> DataFrame:
    """A row for each event and rule that fires."""
    each = F.array(*(F.when(F.col(f"r{number}"), F.lit(rule["id"])) for number, rule in enumerate(rules)))
    found = spark.sql(query(by, rules)).select("transactionId", F.explode(F.array_compact(each)).alias("rule_id"))
    return found


def main() -> None:
    """Run, and print what was measured."""
    table, out, repeats = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    spark = start_session("history in SQL", 2, SETTINGS)
    events = spark.read.format("delta").load(str(table))
    by_key = [(by, list(rules)) for by, rules in groupby(RULES, key=lambda rule: rule["by"])]
    first = events.agg(F.min("eventTime")).first()[0]
    events.where(F.col("eventTime") < F.lit(first) + F.expr("INTERVAL 1 DAY")).createOrReplaceTempView("events")
    for by, rules in by_key:
        fired(spark, by, rules).write.format("noop").mode("overwrite").save()
    events.createOrReplaceTempView("events")
    for _ in range(repeats):
        seconds = {}
        for by, rules in by_key:
            started_s = time.perf_counter()
            fired(spark, by, rules).write.mode("overwrite").parquet(str(out / "-".join(by)))
            seconds[", ".join(by)] = time.perf_counter() - started_s
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()

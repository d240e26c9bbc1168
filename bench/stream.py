"""`buckets.spark.stream` beside `buckets run`, same data and settings: events a second, and the time of small batches.

Steady data, a sum, count, average, minimum and maximum over an hour. Micro-batches have 600,000 rows, or 500. All sinks
throw results away; the last side has its features computed and read.
"""

import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

import yaml
from matplotlib.axes import Axes
from measure import DATA, HERE, WARM_UP_BATCHES, Batches, Runs, Side, alternate, child, median_rates, read_batches
from pyspark.sql import SparkSession
from report import Goal, Report, bars
from sides import ours
from steady import Steady, write_steady
from trial import Trial, write_conf

import buckets.spark as bs
from buckets.config.engine import EngineSettings

JOB, STREAM, FEATURES = "buckets run", "bs.stream", "bs.stream, features"
LARGE, SMALL = Steady(10_000, 10), Steady(10_000, 10, files=60, rows_per_file=500)
WITHIN = 0.05


def streamed(name: str, trial: Trial, features: bool) -> Side:
    """A side that streams a DataFrame."""

    def run(work: Path) -> Batches:
        given = [json.dumps(asdict(trial)), str(work / "stream"), *(["features"] if features else [])]
        return read_batches(child([str(HERE / "stream.py"), *given]))

    return Side(name, run)


def stream(trial: Trial, work: Path, features: bool) -> None:
    """Stream the data of a trial in a session of its own, and print each batch as a line of JSON."""
    work.mkdir(parents=True)
    write_conf(trial, work)
    settings = bs.session_settings() | {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    schema = bs.schema(yaml.safe_load((work / "schema.yaml").read_text()))
    columns = spark.read.parquet(trial.data).schema
    frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", trial.files_per_batch).parquet(trial.data)

    def take(batch: bs.StreamBatch) -> None:
        if features:
            batch.features.write.format("noop").mode("overwrite").save()

    live = bs.stream(
        frame,
        bs.rules(work / "rules.yaml"),
        schema,
        checkpoint=work / "checkpoint",
        order_by=["off"],
        engine=EngineSettings(shards=trial.shards),
        features=features,
    )
    query = live.for_each_batch(take).start(available_now=True)
    query.awaitTermination()
    for each in query.recentProgress:
        batch = {"batch": each["batchId"], "events": each["numInputRows"], "ms": each["durationMs"]["triggerExecution"]}
        print(json.dumps(batch))


def main() -> None:
    """Measure."""
    report = Report("stream", __doc__)
    every: Runs = {}
    for steady, files in ((LARGE, 2), (SMALL, 1)):
        data = write_steady(report.sized(steady), DATA)
        trial = Trial(str(data), files_per_batch=files)
        sides = [
            ours(JOB, trial),
            streamed(STREAM, trial, features=False),
            streamed(FEATURES, trial, features=True),
        ]
        runs = alternate(sides, report.repeats, report.console)
        report.rates(f"batches of {files * steady.rows_per_file:,}", runs, within=data.name)
        delays = {
            side: statistics.median(batch["ms"] for run in done for batch in run.batches[WARM_UP_BATCHES:])
            for side, done in runs.items()
        }
        report.found[data.name] |= {"median_batch_ms": delays}
        report.console.print_json(data=delays)
        report.goal(Goal(f"{data.name}: time of a batch, of {JOB}", delays[STREAM] / delays[JOB], at_most=1 + WITHIN))
        every |= {f"{side}, batches of {files * steady.rows_per_file:,}": done for side, done in runs.items()}

    def draw(axes: Axes) -> None:
        bars(axes, median_rates(every), every, "Events a second")

    report.write(draw)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        stream(Trial(**json.loads(sys.argv[1])), Path(sys.argv[2]), features="features" in sys.argv[3:])
    else:
        main()

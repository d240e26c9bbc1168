"""`bs.stream` over the files of a walk, beside the job: what it gives is what the mirror gives, and the oracle says."""

import contextlib
import copy
import json
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import buckets.spark as bs
from buckets.outputs.columns import DEAD_LETTERS, EVALUATIONS, OUTPUTS
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.spark.sinks import table_columns
from tests.spark.job_folder import JobFolder
from tests.walk.catalogue import Written
from tests.walk.checker import compare
from tests.walk.found import Difference, Row
from tests.walk.mirror import Mirror
from tests.walk.oracle_job import OracleJob
from tests.walk.rare import RarePaths
from tests.walk.recorded import RecordedBatch, Records
from tests.walk.source import Files

COLUMNS = (
    "id string, t bigint, payer string, country string, kind string, device string, gadget string, channel string, "
    "via string, payee string, receiver string, amount string, fee string, items array<struct<sku: string>>"
)
FILES_OF_BATCH = 3
"""Other batches than those of the job, which takes one file at a time."""
FAILS_IN, STOPS_IN = 2, 4
"""The batch whose function fails when it has kept what came out, and the one in which the stream is stopped."""
GIVE_UP_S = 300
FEATURES = "features"


class LiveStream:
    """The stream, with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, job: JobFolder) -> None:
        """Know the folder of the job, whose files have come."""
        self._spark, self._job = spark, copy.copy(job)
        self._job.checkpoint = job.root / "stream"
        self._kept: dict[int, dict[str, pa.Table]] = {}
        self._has_failed = False
        self._comes_to_stop = threading.Event()

    def run(self, rules: Sequence[Written], engine: Mapping[str, Any], lists: Mapping[str, Path]) -> None:
        """Have it fail in a batch, go on, be stopped, and go on to the end.

        Raises:
            Difference: what came out is something else than the mirror and the oracle say.
        """

        def start(**options: bool) -> bs.StreamQuery:
            live = bs.stream(
                _payments(self._spark, self._job.source),
                rules,
                self._job.root / "schema.yaml",
                checkpoint=self._job.checkpoint,
                order_by=["modified", "place"],
                engine=engine,
                lists=lists,
                evaluations=True,
            )
            return live.for_each_batch(self._keep).start(**options)

        failing = start()
        with contextlib.suppress(bs.FrameError):
            failing.awaitTermination(GIVE_UP_S)
        assert self._has_failed, failing.exception()
        stopped = start()
        assert self._comes_to_stop.wait(GIVE_UP_S)
        stopped.stop()
        assert start(available_now=True).awaitTermination(GIVE_UP_S)
        self._compare()

    def _keep(self, batch: bs.StreamBatch) -> None:
        outputs = (FEATURES, *(output.name for output in OUTPUTS))
        tables = {name: getattr(batch, name).toArrow() for name in outputs}
        before = self._kept.setdefault(batch.id, tables)
        for name, table in tables.items():
            compare(batch.id, f"{name}, tried again", table.to_pylist(), before[name].to_pylist())
        if batch.id == FAILS_IN and not self._has_failed:
            self._has_failed = True
            message = "fails when all is kept"
            raise OSError(message)
        if batch.id == STOPS_IN:
            self._comes_to_stop.set()

    def _compare(self) -> None:
        mirror, oracle = Mirror(), OracleJob(RarePaths())
        batches = Records(self._job.checkpoint, Files(self._job)).new()
        assert sorted(self._kept) == [batch.number for batch in batches]
        assert sum(len(batch.lines) for batch in batches) == sum(len(kept[FEATURES]) for kept in self._kept.values())
        for batch in batches:
            expected, kept = mirror.score(batch), self._kept[batch.number]
            _compare_features(batch, kept.pop(FEATURES), expected[EVALUATIONS])
            kinds = table_columns(batch.terms)
            # Of a row that is no event a DataFrame has another text than a file, and another reason.
            assert len(kept.pop(DEAD_LETTERS)) == len(expected[DEAD_LETTERS])
            for name, table in kept.items():
                names = table.column_names
                rows = table.select(names).cast(pa.schema([kinds[name].field(column) for column in names]))
                own = [{column: row[column] for column in names} for row in expected[name]]
                compare(batch.number, f"{name} of a stream", rows.to_pylist(), own)
            oracle.check(batch, expected)


def _payments(spark: SparkSession, folder: Path) -> DataFrame:
    """The lines of files as columns: each has its place, and one that cannot be read has nothing else."""
    files = spark.readStream.option("maxFilesPerTrigger", FILES_OF_BATCH).option("wholetext", True).text(str(folder))
    modified = F.col("_metadata.file_modification_time").alias("modified")
    lines = files.select(modified, F.posexplode(F.split("value", "\n")).alias("place", "line")).where("line <> ''")
    once = F.when(~F.col("line").rlike('"fee":.*"fee":'), F.col("line"))  # Spark would take the last of two
    return lines.select("modified", "place", F.from_json(once, COLUMNS).alias("payment")).select(
        "modified", "place", "payment.*"
    )


def _compare_features(batch: RecordedBatch, found: pa.Table, evaluations: Sequence[Row]) -> None:
    """See that features are those of evaluations."""
    mine, theirs = Counter(_of_features(batch.rule_set, found)), Counter(_of_evaluations(batch.rule_set, evaluations))
    if mine != theirs:
        more, missing = (sorted(map(repr, side)) for side in (mine - theirs, theirs - mine))
        message = (
            f"batch {batch.number}, features of a stream: {more[:3]} should not be there, {missing[:3]} are missing"
        )
        raise Difference(message)


def _of_features(rule_set: RuleSet, found: pa.Table) -> Iterator[Hashable]:
    rules = [rule for rule in rule_set.rules if _has_features(rule) and rule.is_evaluated]
    for row in found.to_pylist():
        for rule in rules:
            if (fired := row[f"{rule.rule_id}.fired"]) is not None:
                names = (named.name for named in rule.named_features())
                yield row["id"], rule.rule_id, fired, *(_value(row[f"{rule.rule_id}.{name}"]) for name in names)


def _has_features(rule: Rule) -> bool:
    """Whether tables of features have those of a rule."""
    return rule.on == "events" and not rule.asks_alerts


def _of_evaluations(rule_set: RuleSet, evaluations: Sequence[Row]) -> Iterator[Hashable]:
    rules = {rule.rule_id: rule for rule in rule_set.rules if _has_features(rule)}
    for row in evaluations:
        rule = rules.get(row["rule_id"])
        if rule is None:
            continue
        values = [row["value"]]
        if not rule.is_short:
            terms = {term["name"]: term for term in json.loads(row["terms"])}
            values = [terms[named.name]["value"] for named in rule.named_features()]
        yield row["event_id"], rule.rule_id, row["fired"], *map(_value, values)


def _value(value: Any) -> Any:
    """A number as such, however it is given; a text that is none as it is."""
    try:
        return value if value is None or isinstance(value, bool) else Decimal(value)
    except InvalidOperation:
        return value

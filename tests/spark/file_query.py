"""A file through the streaming query of a job, cut into parts of one micro-batch each, with JSON lines for results.

The parts are Parquet files with the rows' numbers in the original file. Modification times ascend, which is the order
in which a file stream takes them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.checkpoint.lock import Lock
from buckets.config.engine import EngineSettings
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.event_file import EventFile, numbered_lines
from buckets.events.parquet_rows import MOST_ROWS, as_arrivals, field_batches
from buckets.events.schema import EventSchema
from buckets.events.source_files import line_reader
from buckets.feeds.lists import ListBook, WholeList
from buckets.feeds.rules.rule_book import RuleBook
from buckets.files import partial_of, write_whole
from buckets.monitor.pace import BatchReport
from buckets.outputs.messages import OUTPUTS, JsonLines
from buckets.rules.rule import Rule
from buckets.spark.query import Scoring, ScoringQuery
from buckets.spark.scored_batch import ScoredBatch
from buckets.spark.sources import ArrivalStream, file_columns, file_reader, list_files, read_files
from tests.fixed_rules import FixedRules

ROW_NUMBER = "__buckets_row_number__"  # Column of a part that has the numbers of the rows in the original file
_FIRST_MTIME_S = 1_700_000_000


class JsonSink:
    """Writes the outputs of each batch as JSON lines; meant for files that one person looks at."""

    def __init__(self, folder: Path) -> None:
        """Write parts under `folder`."""
        self._folder = folder

    def write(self, batch: ScoredBatch) -> None:
        """Write the parts of a batch, over those of an earlier try."""
        writer = JsonLines(batch.rule_set, batch.terms.event_schema)
        for name in OUTPUTS:
            if batch.has(name):
                part = self._folder / name / f"{batch.account.batch_id:09d}.jsonl"
                write_whole(part, "".join(f"{line}\n" for line in writer.lines(name, batch.table(name))))

    def publish(self, target: Path) -> dict[str, int]:
        """Join the parts of each output into one file under `target`, replacing what is there.

        Returns:
            How many lines each output has.
        """
        target.mkdir(parents=True, exist_ok=True)
        lines: dict[str, int] = {}
        for name in OUTPUTS:
            lines[name] = 0
            with partial_of(target / f"{name}.jsonl").open("wb") as joined:
                for part in sorted((self._folder / name).glob("*.jsonl")):
                    text = part.read_bytes()
                    lines[name] += text.count(b"\n")
                    joined.write(text)
        for name in OUTPUTS:
            whole = target / f"{name}.jsonl"
            partial_of(whole).replace(whole)
        return lines


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated: a file of events, rules, the settings that decide results, and lists by name."""

    file: EventFile
    schema: EventSchema
    rules: tuple[Rule, ...]
    engine: EngineSettings
    batch_rows: int | None
    lists: Mapping[str, Path] = field(default_factory=dict)


def evaluation_query(
    spark: SparkSession, evaluation: Evaluation, work: Path, on_batch: Callable[[BatchReport], None]
) -> tuple[ScoringQuery, JsonSink]:
    """The query over a file, and the sink that will hold its results.

    Args:
        spark: the session.
        evaluation: what is evaluated.
        work: a folder for parts, checkpoint and results; a second query with the same folder goes on from there.
        on_batch: called after each batch.
    """
    parts = work / "parts"
    if not parts.exists():
        staging = work / "staging"
        stage(evaluation.file, evaluation.schema, staging, evaluation.batch_rows)
        staging.rename(parts)
    checkpoint = Checkpoint(work / "checkpoint")
    checkpoint.job.open(CheckpointIdentity(str(evaluation.file.path), evaluation.schema, evaluation.engine))
    lists = ListBook(checkpoint, {name: WholeList(path) for name, path in evaluation.lists.items()})
    sink = JsonSink(work / "results")
    scoring = Scoring(
        arrivals=_staged(spark, evaluation.file, parts),
        terms=Terms(event_schema=evaluation.schema, engine=evaluation.engine, evaluations=True, output="json"),
        checkpoint=checkpoint,
        lock=Lock(checkpoint.path),
        book=RuleBook(checkpoint, FixedRules(evaluation.rules), evaluation.schema, evaluation.engine, lists=lists),
        sink=sink,
    )
    return ScoringQuery(scoring, on_batch), sink


def _staged(spark: SparkSession, file: EventFile, parts: Path) -> ArrivalStream:
    if file.kind == "parquet":
        files = list_files(file_reader(spark, 1), str(parts))
        return read_files(files.select(*file_columns(parts)), lambda part, _, schema: typed_part(part, file, schema))
    first = spark.read.parquet(str(min(parts.glob("*.parquet"))))
    frame = file_reader(spark, 1).schema(first.schema).parquet(str(parts))
    number = F.col(ROW_NUMBER).alias(POSITION)
    origin = [F.lit(file.path.name).alias(SOURCE), F.lit(0).cast("long").alias(SOURCE_ORDER), number]
    lines = frame.select(RAW, *origin)
    return ArrivalStream(lines, lambda batches, schema: line_reader(file.kind, schema, file.header)(batches))


def stage(file: EventFile, schema: EventSchema, folder: Path, batch_rows: int | None) -> int:
    """Cut a file into parts.

    Args:
        file: the file.
        schema: the event schema, whose fields are kept of typed columns.
        folder: where the parts go.
        batch_rows: the most rows of a part; None for no limit, though large typed rows still make several parts.

    Returns:
        How many parts there are.
    """
    folder.mkdir(parents=True)
    parts = 0
    for parts, table in enumerate(_tables(file, schema, batch_rows), 1):
        part = folder / f"part-{parts:09d}.parquet"
        pq.write_table(table, part)
        os.utime(part, (_FIRST_MTIME_S + parts, _FIRST_MTIME_S + parts))
    return parts


def typed_part(part: Path, file: EventFile, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """A part of a file with typed columns, as arrivals."""
    for rows in field_batches(part, [*schema.field_names, ROW_NUMBER]):
        order = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
        yield as_arrivals(rows, schema, file.path.name, order, rows.column(ROW_NUMBER))


def _tables(file: EventFile, schema: EventSchema, batch_rows: int | None) -> Iterator[pa.Table]:
    if file.kind != "parquet":
        for lines in numbered_lines(file, batch_rows):
            yield pa.table({ROW_NUMBER: lines.column(POSITION), RAW: lines.column(RAW)})
        return
    first = 1
    for rows in field_batches(file.path, schema.field_names, batch_rows or MOST_ROWS):
        numbers = pa.array(range(first, first + len(rows)), pa.int64())
        yield pa.Table.from_batches([rows]).append_column(ROW_NUMBER, numbers)
        first += len(rows)

"""A micro-batch of `buckets.spark.stream` as its user gets it: what came out, as DataFrames.

What shards put out is on the driver, as payloads, or lies in files. A DataFrame of an output reads these, so that
reading several scores nothing again.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from buckets.engine.batch import payload
from buckets.engine.results.feature_table import FeatureTable
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.in_memory import OutputDecoder
from buckets.engine.stages.shard import ROWS
from buckets.engine.values.feature_rules import FEATURES
from buckets.errors import kind_and_line
from buckets.outputs import columns
from buckets.spark.arrow_types import from_arrow_schema, to_arrow_schema
from buckets.spark.frame_input import FrameError, beside_kinds, check_is_frame, numbered_kinds, output_kinds, told_as
from buckets.spark.frame_rows import beside_rows, in_utc, of_rows
from buckets.spark.scored_batch import ScoredBatch
from buckets.spark.session_folder import check_delta
from buckets.spark.spilled import payloads_of, spilled
from buckets.spark.worker import settle

_OF_OUTCOME = (columns.COLLISIONS, columns.LATE_EVENTS, columns.DUPLICATES, columns.DEAD_LETTERS)
"""The outputs that say what became of an event that was not evaluated."""
_HERE_BYTES = 1 << 20  # Payloads of less are decoded on the driver: a task of Python takes longer to begin
Share = Sequence[bytes]  # Payloads, or where they lie, that a task decodes together


def _decoded(output: str, decoder: OutputDecoder, kinds: pa.Schema, share: Share) -> pa.Table:
    """Decode an output."""
    payloads = (each for packed in share for each in payloads_of(packed))
    return decoder.table(output, payloads).select(kinds.names).cast(kinds)


def _beside(table: FeatureTable, put_out: Mapping[str, Sequence[bytes]], share: Share) -> pa.Table:
    """Put features beside rows; `put_out` are by output what shards have put out."""
    (packed,) = (each for packed in share for each in payloads_of(packed))
    rows = payload.unpack(packed)
    first = int(payload.group_of(rows))
    own = {
        output: [*filter(None, (of_rows(each, first, len(rows)) for packed in several for each in payloads_of(packed)))]
        for output, several in put_out.items()
    }
    return beside_rows(rows, table.beside(own, len(rows)))


def _folder(frame: DataFrame, path: str | Path) -> tuple[Any, Any]:
    """Return a path as Hadoop has it, behind the file system in which it lies."""
    session: Any = frame.sparkSession
    if isinstance(path, str | Path) and str(path):
        with contextlib.suppress(Py4JJavaError, PySparkException):
            folder = session._jvm.org.apache.hadoop.fs.Path(str(path))
            return folder.getFileSystem(session._jsc.hadoopConfiguration()), folder
    message = f"write_delta: must be given the path of a table, not {path!r}"
    raise FrameError(message, "NOT_A_TABLE")


def _lacking(frame: DataFrame, path: str | Path) -> list[str]:
    """Return the columns of a DataFrame that a Delta table lacks."""
    there = frame.sparkSession.read.format("delta").load(str(path)).columns
    return [name for name in frame.columns if name not in there]


class StreamBatch:
    """A micro-batch that has been scored: an attribute for each output, a DataFrame that lives as long as the function.

    Outputs: `features` are the columns of the stream, and beside them `outcome`, for each rule its features as
    `RULE.FEATURE`, and `RULE.fired`, as `buckets.spark.features` gives them. `alerts`, `shadow_alerts`, `held_alerts`,
    `evaluations`, `late_events`, `collisions`, `duplicates` and `dead_letters` are as `buckets.spark.evaluate` gives
    them. A batch that is tried again has the same rows.

    Attributes:
        id: its number, from 0; the same when it is tried again, so that a sink can pass over what it has.
        rules_version: the version of the rules that evaluated it.
        account: how many events of each group had which outcome.
    """

    def __init__(self, batch: ScoredBatch, frame: StructType, flags: bool, identity: str) -> None:
        """Keep what came out; `frame` are the columns of the stream, `identity` is that of its checkpoint."""
        self._batch, self._frame, self._flags, self._identity = batch, frame, flags, identity
        self._written: dict[str, DataFrame] = {}
        self.id: int = batch.account.batch_id
        self.rules_version: int = batch.rule_set.version
        self.account: BatchAccount = batch.account

    @cached_property
    def features(self) -> DataFrame:
        """The columns of the stream, and features beside them."""
        batch = self._batch
        self._see("features", batch.terms.features)
        table = FeatureTable(batch.rule_set, batch.terms.event_schema, self._flags, refuses_others=False)
        beside = beside_kinds(table, self._frame)
        names = [*self._frame.names, *beside.names]
        kinds = numbered_kinds([*self._frame.fields, *beside.fields])
        payloads = {output: batch.payloads(output) for output in (FEATURES, *_OF_OUTCOME) if batch.has(output)}
        decode = partial(_beside, table, payloads)
        return self._frame_of([[row] for row in batch.payloads(ROWS)], decode, kinds).toDF(*names)

    def __getattr__(self, name: str) -> DataFrame:
        """Return an output."""
        batch = self.__dict__.get("_batch")
        kinds = {} if batch is None else output_kinds(batch.terms.event_schema)
        if batch is None or name not in kinds:
            message = f"there is no output {name!r}; there are features, {', '.join(kinds)}"
            raise AttributeError(message)
        self._see(name, name != columns.EVALUATIONS or batch.terms.evaluations)
        payloads = batch.payloads(name)
        # An event that is a dead letter of several groups has one row.
        shares = [payloads] if name == columns.DEAD_LETTERS and payloads else [[packed] for packed in payloads]
        decode = partial(_decoded, name, batch.decoder, kinds[name])
        self.__dict__[name] = frame = self._frame_of(shares, decode, from_arrow_schema(kinds[name]))
        return frame

    def __dir__(self) -> list[str]:
        """Return the names of attributes, with those of outputs."""
        return [*super().__dir__(), *output_kinds(self._batch.terms.event_schema)]

    def write_delta(self, frame: DataFrame, path: str | Path, **options: Any) -> None:
        """Append a DataFrame to a Delta table exactly once, however often the batch is tried.

        Delta remembers for each table the last batch of this stream; `options` are further ones of Delta's writer,
        such as `mergeSchema=True`, by which a table gets columns that it lacks. Few rows for a table that has their
        columns are written by this process, in a tenth of the time that Spark takes.

        Raises:
            FrameError: the batch has written another DataFrame to the table before (`WRITTEN_TWICE`); there is no
                table, and none can be made (`NOT_A_TABLE`), or it lacks a column (`COLUMN_MISSING`).
        """
        check_is_frame(frame, "write_delta")
        check_delta(f"write_delta {path}")
        files, folder = _folder(frame, path)
        place = str(files.makeQualified(folder))  # however it is written
        place = os.path.realpath(place.removeprefix("file:")) if place.startswith("file:") else place
        if self._written.setdefault(place, frame) is not frame:
            message = f"write_delta: this batch has written to {path} before; write all its rows at once"
            raise FrameError(message, "WRITTEN_TWICE")
        if not options and self._append_here(frame, path):
            return
        # Spark would make a table of files that are there.
        is_table = files.exists(folder.suffix("/_delta_log"))
        if not is_table and files.exists(folder) and (files.isFile(folder) or len(files.listStatus(folder))):
            message = f"write_delta {path}: has files and is no Delta table; name another folder, or remove them"
            raise FrameError(message, "NOT_A_TABLE")
        writer = frame.write.format("delta").mode("append").options(**options)
        try:
            writer.option("txnAppId", self._identity).option("txnVersion", self.id).save(str(path))
        except AnalysisException as error:
            lacking = _lacking(frame, path) if error.getCondition() == "DELTA_METADATA_MISMATCH" else []
            if not lacking:
                raise
            remedy = "give mergeSchema=True, and it gets them"
            message = f"write_delta {path}: the table lacks columns: {', '.join(lacking)}; {remedy}"
            raise FrameError(message, "COLUMN_MISSING") from None
        except Py4JJavaError as error:
            if "DELTA_CANNOT_CREATE_LOG_PATH" not in str(error):
                raise
            message = f"write_delta {path}: cannot be made there; name a folder that can be written"
            raise FrameError(message, "NOT_A_TABLE") from error

    def _append_here(self, frame: DataFrame, path: str | Path) -> bool:
        from buckets.delta.kept_table import append_if_plain  # Workers read this module, and write no table

        size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
        if size > _HERE_BYTES or "variant" in frame.schema.simpleString() or not Path(path).is_absolute():
            return False
        with told_as("NOT_A_TABLE"):
            return append_if_plain(path, self._identity, self.id, in_utc(frame.toArrow()))

    def _see(self, output: str, is_kept: bool) -> None:
        if not is_kept:
            message = f"{output}: are not computed by this stream; start it with bs.stream(..., {output}=True)"
            raise FrameError(message, "NOT_COMPUTED")

    def _frame_of(self, shares: Sequence[Share], decode: Callable[[Share], pa.Table], kinds: StructType) -> DataFrame:
        """Return the rows of shares, decoded here if they are few, or by tasks."""
        session = self._batch.session
        sizes = [_HERE_BYTES if spilled(packed) else len(packed) for share in shares for packed in share]
        if sum(sizes) < _HERE_BYTES and "variant" not in kinds.simpleString():
            nothing = to_arrow_schema(kinds).empty_table()
            return session.createDataFrame(pa.concat_tables(map(decode, shares)) if shares else nothing, kinds)

        def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from decode(shares[number]).combine_chunks().to_batches()
            settle()

        tasks = min(len(shares), 2 * session.sparkContext.defaultParallelism)
        return session.range(0, len(shares), 1, tasks).mapInArrow(stage, kinds)


class FunctionSink:
    """Gives each batch to a function of the user's.

    Attributes:
        failure: what the function has raised; None while it has not.
        thread: in which it runs; None while it does not.
    """

    def __init__(self, work: Callable[[StreamBatch], object], frame: StructType, flags: bool, identity: str) -> None:
        """Call `work`; the others are as for `StreamBatch`."""
        self._work, self._of_batch = work, (frame, flags, identity)
        self.failure: Exception | None = None
        self.thread: int | None = None

    def write(self, batch: ScoredBatch) -> None:
        """Call the function."""
        self.thread = threading.get_ident()
        try:
            self._work(StreamBatch(batch, *self._of_batch))
        except Exception as error:
            self.failure = error
            message = (
                f"for_each_batch: {kind_and_line(error)}, in batch {batch.account.batch_id}; it is not committed, and "
                "the next start tries it again"
            )
            raise FrameError(message, "BATCH_FAILED") from error
        finally:
            self.thread = None

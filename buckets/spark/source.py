"""Sources: topics, files and Delta tables as streams of arrivals, in the form that `buckets.arrivals` describes.

Text files are read as lines and numbered in Python, a whole file by one task; JSON is parsed by the JVM, CSV line by
line. Parquet and Delta, which have typed columns, are in `file_source`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from buckets.arrivals import BROKEN, INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER, field_column
from buckets.csv_lines import read_lines, split_header
from buckets.event_schema import EventSchema
from buckets.job import SourceSettings
from buckets.kafka.settings import KafkaSettings
from buckets.spark.file_source import file_place, file_reader, open_delta, open_parquet_files

Normalise = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_CORRUPT = "__corrupt__"
_EVENT, _END = "__event__", "__end__"
_INVALID = "invalid_utf8"
"""Column that holds, in hexadecimal, the bytes of a line that is no valid UTF-8."""
_BYTE_ORDER_MARK = "\ufeff"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True)
class Arrivals:
    """A stream of rows, and what brings its Arrow batches into the form of `buckets.arrivals`."""

    frame: DataFrame
    normalise: Normalise


def open_source(
    spark: SparkSession,
    source: SourceSettings,
    schema: EventSchema,
    needed: frozenset[str],
    kafka: KafkaSettings | None = None,
) -> Arrivals:
    """Open the stream that a configuration names.

    Args:
        spark: the session.
        source: where events come from.
        schema: the event schema.
        needed: fields that rules use.
        kafka: how Kafka is reached, for a topic.

    Raises:
        BucketsError: columns are missing.
    """
    if source.kind == "kafka":
        assert kafka is not None
        return _open_topic(spark, source, kafka, schema)
    if source.kind in ("json", "csv"):
        return _open_text(spark, source, schema)
    if source.kind == "delta":
        return Arrivals(*open_delta(spark, source, schema, needed))
    return Arrivals(*open_parquet_files(spark, source, schema, needed))


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """How Spark's own Kafka client is set up.

    By its defaults Spark notices only after minutes that no broker answers; what it says then is waited out by us.
    """
    reached = {f"kafka.{name}": value for name, value in kafka.java().items()}
    return reached | {
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        "kafkaConsumer.pollTimeoutMs": "20000",
        # What a batch reads is there already; a fetch that was begun at the end must not hold up the next one.
        "kafka.fetch.max.wait.ms": "10",
    }


def _open_topic(spark: SparkSession, source: SourceSettings, kafka: KafkaSettings, schema: EventSchema) -> Arrivals:
    """Messages in the order of partition and offset; a value is one JSON object."""
    reader = spark.readStream.format("kafka").options(**kafka_options(kafka)).option("subscribe", source.topic)
    reader = reader.option("startingOffsets", source.starting_offsets)
    reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
    value = F.coalesce(F.col("value"), F.lit(b"")).cast("string")
    messages = reader.load().select(
        value.alias(RAW),
        F.format_string(f"{source.topic}[%d]", "partition").alias(SOURCE),
        F.col("partition").cast("long").alias(SOURCE_ORDER),
        F.col("offset").alias(POSITION),
        F.unix_millis("timestamp").alias(INGESTED),
    )
    return Arrivals(_parse_json(_with_valid_text(messages), schema, "not one object"), _valid)


def _fields(schema: EventSchema, column: Callable[[str], Column]) -> list[Column]:
    return [column(name).alias(field_column(index)) for index, name in enumerate(schema.field_names)]


def _open_text(spark: SparkSession, source: SourceSettings, schema: EventSchema) -> Arrivals:
    reader = file_reader(spark, source.max_files_per_trigger, source.subfolders)
    lines = reader.text(source.path).select(F.col("value").alias(RAW), *file_place())
    lines = lines.coalesce(spark.sparkContext.defaultParallelism)
    return text_arrivals(lines, source.kind, schema, header=None)


def text_arrivals(lines: DataFrame, kind: str, schema: EventSchema, header: list[str] | None) -> Arrivals:
    """Arrivals of lines of text.

    Args:
        lines: columns `raw` (which may be no valid UTF-8), `source`, `source_order`, and `position` where lines are
            already numbered.
        kind: json or csv.
        schema: the event schema.
        header: the fields of CSV lines, where the header line is not among them.
    """
    lines = _with_valid_text(lines)
    if kind == "json":
        return Arrivals(_parse_json(lines, schema, "not one object on one line"), _numbered)

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _split_csv(_numbered(batches), schema, header)

    return Arrivals(lines, split)


def _with_valid_text(lines: DataFrame) -> DataFrame:
    """Text that is no valid UTF-8 made valid, and its bytes beside it."""
    lines = lines.withColumn(_INVALID, F.when(~F.is_valid_utf8(RAW), F.hex(RAW)))
    return lines.withColumn(RAW, F.make_valid_utf8(RAW))


def _parse_json(lines: DataFrame, schema: EventSchema, fault: str) -> DataFrame:
    """Lines into fields of text; what is broken is said to be `fault`.

    Spark's parser stops behind the first value of a line, and would pass over a second event. So each line is parsed
    inside an object that goes on behind it: where the line's own value ends early, that part is not found.
    """
    event = StructType([StructField(name, StringType()) for name in schema.field_names])
    wrapped = StructType([StructField(_EVENT, event), *(StructField(name, StringType()) for name in (_END, _CORRUPT))])
    text = F.when(F.col(RAW).startswith(_BYTE_ORDER_MARK), F.substr(RAW, F.lit(2))).otherwise(F.col(RAW))
    inside = F.concat(F.lit(f'{{"{_EVENT}":'), text, F.lit(f',"{_END}":"{_END}"}}'))
    frame = lines.withColumn("parsed", F.from_json(inside, wrapped, _JSON_OPTIONS))
    whole = F.col(f"parsed.{_CORRUPT}").isNull() & (F.col(f"parsed.{_END}") == _END) & F.trim(text).startswith("{")
    broken = F.when(~F.coalesce(whole, F.lit(False)), F.lit(f"broken JSON: {fault}")).alias(BROKEN)
    fields = _fields(schema, lambda name: F.col(f"parsed.{_EVENT}").getField(name))
    return frame.select(*lines.columns, broken, *fields)


def _valid(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        yield _without_invalid(rows)


def _with_paths(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with file addresses as plain paths."""
    source = rows.column(SOURCE).dictionary_encode()
    paths = [
        unquote(urlsplit(name).path) if name.startswith("file:") else name for name in source.dictionary.to_pylist()
    ]
    plain = pa.array(paths, pa.string()).take(source.indices)
    return rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, plain)


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows with the number of each line in its file, from 1; without blank lines."""
    lines_before: dict[str, int] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch
        if POSITION not in rows.schema.names:
            rows = _with_paths(rows)
            source = rows.column(SOURCE).dictionary_encode()
            codes = source.indices.to_numpy()
            numbers = np.empty(len(codes), np.int64)
            for code, name in enumerate(source.dictionary.to_pylist()):
                chosen = np.flatnonzero(codes == code)
                before = lines_before.get(name, 0)
                numbers[chosen] = np.arange(before + 1, before + len(chosen) + 1)
                lines_before[name] = before + len(chosen)
            rows = rows.append_column(POSITION, pa.array(numbers))
        rows = _without_invalid(rows)
        blank = pc.equal(pc.utf8_trim_whitespace(rows.column(RAW)), "")
        if pc.any(blank).as_py():
            rows = rows.filter(pc.invert(blank))
        yield rows


def _without_invalid(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with `broken` set where a line is no valid UTF-8, and its bytes shown with backslashes."""
    invalid = rows.column(_INVALID)
    names = [name for name in rows.schema.names if name != _INVALID]
    if invalid.null_count == len(invalid):
        return rows.select(names)
    raw = rows.column(RAW).to_pylist()
    broken = rows.column(BROKEN).to_pylist() if BROKEN in names else [None] * len(raw)
    for row, digits in enumerate(invalid.to_pylist()):
        if digits is not None:
            raw[row] = bytes.fromhex(digits).decode("utf-8", errors="backslashreplace")
            broken[row] = "is not valid UTF-8"
    columns = {name: rows.column(name) for name in names}
    columns |= {RAW: pa.array(raw, pa.string()), BROKEN: pa.array(broken, pa.string())}
    return pa.record_batch(columns)


def _split_csv(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, header: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Lines into columns, each file by its own header line."""
    headers: dict[str, list[str]] = {}
    for rows in batches:
        source = rows.column(SOURCE).to_pylist()
        lines = rows.column(RAW).to_pylist()
        starts = [0, *(row for row in range(1, len(source)) if source[row] != source[row - 1]), len(source)]
        for start, end in pairwise(starts):
            first = start
            if header is None and first < end and source[first] not in headers:
                headers[source[first]] = _header(lines[first])
                first += 1
            if first < end:
                names = header if header is not None else headers[source[first]]
                yield _csv_part(rows.slice(first, end - first), lines[first:end], names, schema)


def _header(line: str) -> list[str]:
    """The names of a header line; none where it is broken, so that no record of its file fits."""
    try:
        return split_header(line.removeprefix(_BYTE_ORDER_MARK))
    except ValueError:
        return []


def _csv_part(rows: pa.RecordBatch, lines: list[str], header: list[str], schema: EventSchema) -> pa.RecordBatch:
    columns = read_lines(lines, header, schema.field_names)
    reasons = columns.broken
    if BROKEN in rows.schema.names:
        reasons = [first or then for first, then in zip(rows.column(BROKEN).to_pylist(), reasons, strict=True)]
        rows = rows.drop_columns([BROKEN])
    rows = rows.append_column(BROKEN, pa.array(reasons, pa.string()))
    for index, name in enumerate(schema.field_names):
        rows = rows.append_column(field_column(index), pa.array(columns.fields[name], pa.string()))
    return rows

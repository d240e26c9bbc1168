"""Features of rules at each event of a table or an archive, as of its arrival, and the outputs that hold them.

They are written to one Parquet file or Delta table, atomically, or to a folder, in rounds (`feature_folder`).
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from buckets import __version__
from buckets.archive import arrived_rows
from buckets.archive.history import History
from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings
from buckets.delta.commits import LOG, DataFile
from buckets.delta.whole_table import is_made, is_table, open_table, query, quoted_column
from buckets.engine.results.feature_table import FeatureTable, numbered
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.errors import BucketsError, first_line
from buckets.events.arrivals import POSITION, SOURCE
from buckets.events.bad_rows import BadRows
from buckets.events.conversion import attributes
from buckets.events.event_file import KINDS, file_kind
from buckets.events.parquet_rows import field_batches, open_parquet
from buckets.events.schema import EventSchema
from buckets.events.source_files import open_text
from buckets.files import partial_of
from buckets.history.feature_folder import LOCK, TIMELINES, WRITER, FeatureFolder, Unit, written_to
from buckets.history.scoring import (
    JOINED_ROWS,
    NO_ROWS,
    ArchivePiece,
    ArchiveRows,
    KeptTimelines,
    Pieces,
    ScoreArchive,
    ScoredPiece,
    spans_of,
    with_recorded_lists,
)
from buckets.lists.index import Lists
from buckets.outputs.columns import DEAD_LETTERS
from buckets.rules.rule_set import RuleSet

_NOT_IN_DELTA = frozenset(" ,;{}()\n\t=")  # Characters that Delta does not allow in names of columns
_TIME = pa.timestamp("us", "UTC")
_MARK = "description"  # Of the metadata of a file: only files with the mark `WRITER` are replaced


def check_output(
    path: Path, source: Path | None, columns: pa.Schema, overwrite: bool, by: Unit | None = None
) -> FeatureFolder | None:
    """Check, before computing features, that they can be written to a `.parquet` file or a Delta table.

    They must not be written to their own source; what exists is replaced only if allowed, or with `by` continued.
    """
    if source is not None and path.resolve() == source.resolve():
        message = f"--out {path}: holds the events; name another file or table"
        raise BucketsError(message)
    is_file = path.suffix == ".parquet"
    if by is not None and is_file:
        message = f"--out {path}: with --by {by} it is a folder; take a name that does not end in .parquet"
        raise BucketsError(message)
    if by is not None and by in columns.names:
        message = f"--by {by}: events have an attribute of this name; take another unit"
        raise BucketsError(message)
    if path.exists() and not ((overwrite or by) and _is_marked(path, is_file, by)):
        wanted = "a file" if is_file else "a Delta table" if by is None else f"a Delta table by {by}"
        missing = f"is there and is not {wanted} that `buckets features` wrote; name another, or remove it"
        remedy = missing if overwrite or by else "is there; name another, or --overwrite"
        message = f"--out {path}: {remedy}"
        raise BucketsError(message)
    name = next((name for name in columns.names if _NOT_IN_DELTA.intersection(name)), None)
    if name is not None and not is_file:
        message = f"--out {path}: column {name!r} cannot be in a Delta table; write a file that ends in .parquet"
        raise BucketsError(message)
    return None if by is None else FeatureFolder(path.resolve(), by, _in_delta(columns))


def _is_marked(path: Path, is_file: bool, by: Unit | None) -> bool:
    """Return whether an earlier run has written the existing output; nothing else is replaced."""
    try:
        if is_file:
            return (pq.read_metadata(path).metadata or {}).get(_MARK.encode()) == WRITER.encode()
        if path.is_file():
            return False
        if not is_made(path):  # a run may have been killed before its table was there
            return by is not None and {inside.name for inside in path.iterdir()} <= {LOG, LOCK}
        table = DeltaTable(path).metadata()
        return table.description == WRITER and table.partition_columns == ([] if by is None else [by])
    except (OSError, pa.ArrowException, DeltaError):
        return False


def write_features(path: Path, columns: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write features; earlier ones are replaced when all are written."""
    with written_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(1) as maker:
            made = _made_ahead(maker, tables)
            if path.suffix == ".parquet":
                _write_parquet(path, columns, made)
            else:
                _write_delta(path, columns, made)


def _made_ahead(maker: ThreadPoolExecutor, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables, each computed while the previous one is written.

    They are computed in a thread other than deltalake's, where no Delta table could be read.
    """
    left = iter(tables)
    following = maker.submit(next, left, None)
    while (table := following.result()) is not None:
        following = maker.submit(next, left, None)
        yield table


def _write_parquet(path: Path, columns: pa.Schema, tables: Iterable[pa.Table]) -> None:
    partial = partial_of(path)
    try:
        with pq.ParquetWriter(partial, columns, compression="zstd") as writer:
            writer.add_key_value_metadata({_MARK: WRITER})
            for table in tables:
                writer.write_table(table)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _in_delta(columns: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_TIME) if pa.types.is_timestamp(field.type) else field for field in columns])


def _write_delta(path: Path, columns: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write one commit, as the rows arrive."""
    kinds = _in_delta(columns)
    raised: list[BucketsError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for table in tables:
                yield from table.cast(kinds).to_batches()
        except BucketsError as error:
            raised.append(error)
            raise

    is_new, reader = not path.exists(), pa.RecordBatchReader.from_batches(kinds, batches())
    try:
        write_deltalake(path, reader, mode="overwrite", schema_mode="overwrite", description=WRITER)
    except Exception:  # an error of a reader comes back as an exception of deltalake's own
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        if raised:
            raise raised[0] from None
        raise


def read_ids(path: Path, column: str) -> pa.Array:
    """Read the distinct ids in a column of a Delta table or a file, with endings as for `buckets evaluate`, as text."""
    kind = "delta" if is_table(path) else file_kind(path)
    if kind is None or (kind != "delta" and not path.is_file()):
        message = f"events {path}: not a Delta table, and not a file that ends in {', '.join(KINDS)}; check the path"
        raise BucketsError(message)
    try:
        ids = _ids(path, kind, column)
    except KeyError:
        message = f"events {path}: no column {column!r}, which names the events that are wanted"
        raise BucketsError(message) from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        message = f"events {path}: the ids in {column!r} cannot be read ({first_line(error)})"
        raise BucketsError(message) from None
    texts, _ = attributes(ids, "string")
    return pc.unique(texts).drop_null()


def _ids(path: Path, kind: str, column: str) -> pa.Array:
    """Read a column; raises KeyError if it is missing."""
    if kind == "delta":
        table = open_table(path)
        if column not in pa.schema(table.schema().to_arrow()).names:
            raise KeyError(column)
        sql = f"select {quoted_column(column)} from rows"
        return query(table, sql, f"events {path}").column(0).cast(pa.string()).combine_chunks()
    if kind == "parquet":
        if column not in open_parquet(path).schema_arrow.names:
            raise KeyError(column)
        pieces = [piece.column(0) for piece in field_batches(path, [column])]
        return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())
    with open_text(path) as file:
        if kind == "csv":
            options = pacsv.ConvertOptions(include_columns=[column], column_types={column: pa.string()})
            return pacsv.read_csv(file, convert_options=options).column(0).combine_chunks()
        ids: list[Any] = [
            json.loads(line, parse_int=str, parse_float=str)[column] for line in file if not line.isspace()
        ]
    return pa.array([None if value is None else str(value) for value in ids], pa.string())


ROUND_S = 60.0  # Rounds in which a folder is written last about as long, or longer
_ORIGIN, _PLACE = "_origin", "_place"  # Columns of scored rows: source and position in the archive


class FeaturesOfPiece(NamedTuple):
    """The features of rows that were scored together."""

    rows: pa.Table  # in a piece that is written, nothing but the wanted ids
    outcomes: Mapping[str, int]  # how many rows there are of each outcome
    arrived: int  # how many events arrived
    bad: tuple[int, int, Sequence[tuple[str, int, str]]]  # as `BadRows.take` takes them
    rounded: Mapping[str, int]  # by measure, how many values were rounded
    files: Sequence[DataFile] = ()  # where the rows of a piece are that is written


class FeatureRun:
    """Computes the features of a span of events.

    Attributes:
        columns: of its tables.
        arrived: how many events have been scored so far.
        outcomes: how often each outcome has come so far, among the rows that were told.
        bad: the rows that are not events, or could not be evaluated by some rule, so far.
        missing: the wanted ids that have not come so far; None where every arrival is wanted.
    """

    def __init__(
        self, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings, ids: pa.Array | None, flags: bool
    ) -> None:
        """Choose the columns; refuses rules over alerts, and rule sets without an evaluated rule.

        A row is made for each arrival, or for the events whose ids are in an Arrow array. `flags` say of each feature
        whether it is exact, and whether it is warm.
        """
        self._rule_set, self._schema, self._engine, self._ids = rule_set, schema, engine, ids
        self._table = FeatureTable(rule_set, schema, flags)
        self.columns = self._table.columns
        self.arrived, self.outcomes, self.bad = 0, Counter[str](), BadRows()
        self.missing: set[str] | None = None if ids is None else set(ids.to_pylist())

    def tables(self, arrivals: Iterable[pa.RecordBatch], lists: Lists) -> Iterator[pa.Table]:
        """Compute the rows of events, in order of arrival, in tables of about half a million."""
        scorer = Scorer(self._schema, self._engine, evaluations=False, lists=lists, features=True, alerts=False)
        job = InMemoryJob(scorer)
        for arrived in _together(arrivals):
            pieces = list(numbered(arrived, self.arrived))
            results = job.score_batch(pieces, self._rule_set)
            origins = pa.Table.from_batches([rows.select([SOURCE, POSITION]) for rows in arrived])
            yield self._take(self._features(pieces, results, origins)).rows

    def tables_of(self, history: History, score: ScoreArchive) -> Iterator[pa.Table]:
        """Compute the rows of an archive; each batch sees its own versions of lists."""
        return (self._take(found).rows for found in score(self._pieces(history), "features", self._found_in))

    def write(self, history: History, score: ScoreArchive, out: FeatureFolder, first: int) -> Iterator[pa.Table]:
        """Write the rows of an archive from an arrival on, in rounds; yield the wanted ids of each piece."""
        self.arrived, named = first, f"--out {out.path}"
        counted = query(out.path, "select outcome, count(*) as rows from rows group by outcome", named)
        self.outcomes.update(dict(zip(*(column.to_pylist() for column in counted.columns), strict=True)))
        if self.missing:
            self.missing.difference_update(query(out.path, "select event_id from rows", named)["event_id"].to_pylist())
        pieces, at, size = self._pieces(history, first), 0, 1
        while at < len(pieces):
            began_s, files, spans = time.monotonic(), list[DataFile](), pieces.spans[at : at + size]
            kept = KeptTimelines(out.path / TIMELINES, first, spans[-1].end)
            for found in score(replace(pieces, spans=spans, kept=kept), "features", partial(self._written_in, out)):
                files += found.files
                yield self._take(found).rows
            out.commit(kept.end, files)
            first, at = kept.end, at + size
            size *= 1 if time.monotonic() - began_s > ROUND_S else 2

    def question(self, history: History) -> dict[str, Any]:
        """Return the inputs that determine the features of an archive, by words for them, as for JSON."""
        ids = [] if self._ids is None else sorted(self._ids.to_pylist())
        return {
            "rules": [rule.model_dump(mode="json", by_alias=True) for rule in self._rule_set.rules],
            "events": str(open_table(history.archive.table_path).metadata().id),
            "ids": blake2b(repr(ids).encode()).hexdigest(),
            "settings": [part.model_dump(mode="json") for part in (self._schema, self._engine)],
            "columns": self.columns.names,
            "software": __version__,
        }

    def _pieces(self, history: History, first: int = 0) -> Pieces:
        terms = Terms(event_schema=self._schema, engine=self._engine, evaluations=False, output="delta")
        rows = ArchiveRows(
            history.archive.under(self._schema.new_names), [*arrived_rows.OWN_COLUMNS.names, *self._schema.all_fields]
        )
        spans = spans_of(history, lambda one, other: one.lists == other.lists, first)
        like = ArchivePiece(NO_ROWS, self._rule_set, terms)
        return Pieces(rows, spans, partial(with_recorded_lists, like, history.recorded), _with_numbered_rows)

    def _found_in(self, scored: ScoredPiece) -> FeaturesOfPiece:
        """Return the features of a piece of an archive; any process may call it."""
        rows = scored.piece.rows
        return self._features(
            [*arrived_rows.arrivals_of(rows, self._schema)], scored.results, rows.select([_ORIGIN, _PLACE])
        )

    def _written_in(self, out: FeatureFolder, scored: ScoredPiece) -> FeaturesOfPiece:
        """Write the features of a piece of an archive; any process may call it."""
        found = self._found_in(scored)
        kept = found.rows.select(["event_id"] if self._ids is not None else [])
        return found._replace(rows=kept, files=[*out.write(found.rows)])

    def _features(self, pieces: Sequence[pa.RecordBatch], results: BatchResults, origins: pa.Table) -> FeaturesOfPiece:
        """Return the features of numbered rows; `origins` are their sources and positions."""
        decoder, bad = OutputDecoder(self._rule_set, self._schema, self._engine), list[tuple[str, int, str]]()
        for letters in decoder.tables(DEAD_LETTERS, results.payloads.get(DEAD_LETTERS, [])):
            places = origins.take(pc.subtract(letters["position"], pieces[0].column(POSITION)[0]))
            bad += zip(*(column.to_pylist() for column in (*places.columns, letters["reason"])), strict=True)
        account = results.account
        rows, arrived = self._table.rows(pieces, results.payloads, self._ids), sum(map(len, pieces))
        counts = {each["values"]: each["counts"] for each in rows["outcome"].value_counts().to_pylist()}
        return FeaturesOfPiece(
            rows, counts, arrived, (account.events_in, account.malformed, bad), account.facts.rounded
        )

    def _take(self, found: FeaturesOfPiece) -> FeaturesOfPiece:
        self.bad.take(*found.bad)
        self.bad.rounded.update(found.rounded)
        self.arrived += found.arrived
        self.outcomes.update(found.outcomes)
        if self.missing:
            self.missing.difference_update(found.rows["event_id"].to_pylist())
        return found


def _with_numbered_rows(rows: pa.Table, piece: ArchivePiece) -> ArchivePiece:
    """Present rows of an archive as rows of one source, with arrival numbers as positions."""
    origins = rows[arrived_rows.SOURCE], rows[arrived_rows.POSITION]
    own = {
        arrived_rows.SOURCE: pa.repeat(pa.scalar(""), len(rows)),
        arrived_rows.SOURCE_ORDER: pa.repeat(pa.scalar(0, pa.int64()), len(rows)),
        arrived_rows.POSITION: rows[arrived_rows.ARRIVAL],
    }
    for name, values in own.items():
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return replace(piece, rows=rows.append_column(_ORIGIN, origins[0]).append_column(_PLACE, origins[1]))


def _together(arrivals: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Join consecutive rows into tables of about half a million."""
    pieces, size = list[pa.RecordBatch](), 0
    for piece in arrivals:
        if pieces and size + len(piece) > JOINED_ROWS:
            yield pieces
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield pieces

"""Live rules over a streaming DataFrame, in its own session: the query of a job, without a configuration.

>>> live = bs.stream(payments, rules, schema, checkpoint="cp", order_by=["partition", "offset"])
>>> query = live.for_each_batch(lambda batch: batch.write_delta(batch.features, "features")).start()

The DataFrame is opened as the source of a job is, and the user's function is its sink; all between is that of a job.
"""

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.checkpoint.job_record import lock_for
from buckets.checkpoint.lock import Lock
from buckets.clock import epoch_ms
from buckets.config.engine import EngineSettings, precision_faults, raw_window_fault
from buckets.config.lists import list_fault
from buckets.duration import parse_duration_ms
from buckets.engine.results.feature_table import FeatureTable
from buckets.errors import BucketsError, first_line, refuse
from buckets.evaluation import check_rules, first_version
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleFeed, RuleRead
from buckets.feeds.lists import ListBook, WholeList
from buckets.feeds.rules.rule_book import RuleBook, RuleFiles
from buckets.lists.keys import KeyForm
from buckets.monitor.words import TimeNotes
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.spark.faults import explain_store
from buckets.spark.frame_input import (
    FrameError,
    RulesOrPath,
    SchemaOrPath,
    beside_kinds,
    check_columns_of,
    check_is_frame,
    check_is_repeatable,
    check_switches,
    engine_settings,
    hash_of_all,
    order_columns,
    read_lists,
    told_as,
)
from buckets.spark.frame_input import rules as read_rules
from buckets.spark.frame_input import schema as read_schema
from buckets.spark.frame_rows import by_place, order_number
from buckets.spark.live_batch import FunctionSink, StreamBatch
from buckets.spark.query import Scoring, ScoringQuery
from buckets.spark.running import Patience
from buckets.spark.session import QUERY_SETTINGS, remember_shards
from buckets.spark.session_folder import check_own_jar
from buckets.spark.sources import open_frame
from buckets.stores.location import location

_OUTPUT = "dataframe"  # In the terms of a batch
_STARTED = "started"
_HASH_BITS = 20  # Of a hash that orders rows: it goes into a position, whose other bits are the place of the row
_PLACES = ("path", "subscribe", "subscribePattern", "assign")  # The options that say what a source reads
_UNITS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}
_INTERVAL = re.compile(rf"(\d+) +({'|'.join(_UNITS)})s?")
_LOG = logging.getLogger("buckets")


class GivenRules(RuleFeed):
    """A feed of rules that a program gives."""

    origin = "Python"

    def __init__(self) -> None:
        """Offer nothing yet."""
        self._given: tuple[Sequence[Rule], dict[str, Any]] | None = None

    def give(self, rules: Sequence[Rule], book: RuleBook, author: str = "", reason: str = "") -> None:
        """Offer rules to the next batch; BucketsError or ValidationError if they cannot follow those in force."""
        by_whom: dict[str, Any] = {"author": author, "reason": reason, "time": epoch_ms(), "origin": self.origin}
        RuleChange(change="delete_all", **by_whom)  # See that these are texts also where no rule changes.
        refused = book.refusals(changes_between(book.in_force.rules, rules, **by_whom))
        if refused:
            raise BucketsError(refused[0].reason)
        self._given = rules, by_whom

    def read(self, in_force: Sequence[Rule] = ()) -> RuleRead:
        """Return how what was given last differs from the rules in force."""
        given, self._given = self._given, None
        return RuleRead() if given is None else RuleRead(changes_between(in_force, given[0], **given[1]))

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """End the query: these rules were valid when they were given."""
        raise BucketsError(refusals[0].reason)


class QueryRules:
    """The rules of a query."""

    def __init__(self, book: RuleBook, feed: RuleFeed, check: Callable[[Sequence[Rule]], None]) -> None:
        """Know where they come from; `check` raises what is wrong with others."""
        self._book, self._feed, self._check = book, feed, check
        self.has_ended = False  # Whether no batch would have others any more

    @property
    def version(self) -> int:
        """The version in force: the one that the newest batch has; 0 before the first."""
        return self._book.in_force.version

    @property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules of this version."""
        return self._book.in_force.rules

    def update(self, rules: RulesOrPath, author: str = "", reason: str = "") -> None:
        """Have the next batch evaluate other rules: those that are the same go on, and those that are missing go.

        Args:
            rules: all rules that are to hold, as `buckets.spark.rules` takes them.
            author: who wants it, for the history of the rules.
            reason: why.

        Raises:
            FrameError: they, the author or the reason are not valid (`INVALID_RULES`), rules are followed from a path
                (`RULES_FOLLOWED`), or the query has ended (`QUERY_ENDED`); those in force stay.
        """
        if self.has_ended:
            message = "rules: the query has ended, and evaluates no others; give them to bs.stream, and start it again"
            raise FrameError(message, "QUERY_ENDED")
        if not isinstance(self._feed, GivenRules):
            message = f"rules: are followed from {self._feed.origin}; change them there"
            raise FrameError(message, "RULES_FOLLOWED")
        given = read_rules(rules)
        self._check(given)
        with told_as("INVALID_RULES"):
            self._feed.give(given, self._book, author, reason)


class StreamQuery:
    """A query that runs in a thread of its own, with the names that PySpark's `StreamingQuery` has.

    Attributes:
        id: the identity of its checkpoint.
        rules: its rules, which can be changed while it runs.
    """

    def __init__(self, scoring: Scoring, rules: QueryRules, sink: FunctionSink, identity: str) -> None:
        """Wait for `begin`."""
        self.id, self.rules = identity, rules
        self._query = ScoringQuery(scoring, lambda report: None, self._on_phase, _STARTED)
        self._sink = sink
        self._failure: Exception | None = None
        self._has_begun = threading.Event()

    def begin(self, interval_ms: int | None) -> None:
        """Run from now on; returns when Spark has started the query, or raises why it has not."""
        self._thread = threading.Thread(target=self._run, args=(interval_ms,), name="buckets stream", daemon=True)
        self._thread.start()
        self._has_begun.wait()
        if self._failure is not None:
            raise self._failure

    def _on_phase(self, phase: str) -> None:
        if phase == _STARTED:
            self._has_begun.set()

    def _run(self, interval_ms: int | None) -> None:
        try:
            self._query.serve(interval_ms)
        except Exception as error:
            self._failure = self._told(error)
        finally:
            self.rules.has_ended = True
            self._has_begun.set()

    def _told(self, error: Exception) -> Exception:
        """Return a failure as those see it who wait for the query; its cause is what the user's function has raised."""
        if isinstance(error, BucketsError) and not isinstance(error, FrameError):
            failure = FrameError(error.message, "STREAM_FAILED")
            failure.__cause__ = error
            return failure
        if isinstance(error, AnalysisException):
            return FrameError(f"frame: Spark does not run this stream: {first_line(error)}", "STREAM_FAILED")
        if self._sink.failure is not None:
            error.__cause__ = self._sink.failure
        return error

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, or for so many seconds; return whether it has.

        Raises:
            FrameError: it has ended by a fault: of the function that takes batches (`BATCH_FAILED`, whose cause is what
                that has raised), or another (`STREAM_FAILED`).
        """
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure
        return not self.isActive

    def stop(self) -> None:
        """Let the batch that is running end, and then the query; a function that takes batches may call it too."""
        self.rules.has_ended = True
        self._query.stop()
        if self._sink.thread != threading.get_ident():
            self._thread.join()

    def exception(self) -> Exception | None:
        """Return by which fault it has ended; None where there is none."""
        return self._failure

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """What Spark reports of the latest batches."""
        return self._query.progress()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """What Spark reports of the latest batch; None before the first."""
        return next(reversed(self.recentProgress), None)


@dataclass(frozen=True)
class LiveFrame:
    """Rules over a stream, before it starts: `for_each_batch` says what is done with batches, `start` starts it."""

    frame: DataFrame  # the stream
    rules: Sequence[Rule]  # the rules of the start
    followed: Path | None  # the file or folder that they are followed from; None: nowhere
    schema: EventSchema  # the event schema
    checkpoint: Path  # where everything is kept that the next start needs
    source: str  # what the checkpoint belongs to: the sources of the stream, and its order, in words
    order: Sequence[Column]  # the order within a batch
    engine: EngineSettings  # what decides results
    lists: Mapping[str, Path]  # by name, the files of lists
    list_keys: Mapping[str, KeyForm]  # by name, what the keys of lists are made of
    features: bool  # whether features are computed
    evaluations: bool  # whether evaluations are
    flags: bool  # whether features say of each whether it is exact, and whether it is warm
    work: Callable[[StreamBatch], object] | None = None  # what is done with each batch

    def for_each_batch(self, work: Callable[[StreamBatch], object]) -> "LiveFrame":
        """Have a function called with each batch, a `StreamBatch`, one after the other, in this process.

        A batch is done when the function returns. One that was not committed is tried again at the next start, with the
        same `id` and the same rows.
        """
        if not callable(work):
            message = f"for_each_batch: must be a function that takes a batch, not {work!r}"
            raise FrameError(message, "NO_FUNCTION")
        return replace(self, work=work)

    def start(self, *, interval: str | None = None, available_now: bool = False) -> "StreamQuery":
        """Start the query, which runs in a thread of its own.

        While it starts, the session has the settings that the query needs, of which Spark makes a copy for it: the
        state store of RocksDB, and as many shuffle partitions as there are cores. After that it has its own again.

        Args:
            interval: how often a batch begins, as in "500 milliseconds" or "5s"; None: when the last one has ended.
            available_now: whether to do what is there, and end.

        Raises:
            FrameError: there is no function (`NO_FUNCTION`); the session lacks the jar of `session_settings`
                (`NO_JAR`); the interval is none, or goes with `available_now` (`INVALID_INTERVAL`), which is not True
                or False (`INVALID_OPTION`); the checkpoint is in use (`CHECKPOINT_IN_USE`), cannot be made
                (`CHECKPOINT_UNWRITABLE`), or is damaged or was made for something else (`CHECKPOINT_MISMATCH`); the
                rules cannot follow those in it (`INVALID_RULES`); Spark cannot start the query (`STREAM_FAILED`).
        """
        if self.work is None:
            message = "for_each_batch: is missing; give the function that takes each batch, and then start"
            raise FrameError(message, "NO_FUNCTION")
        check_switches(available_now=available_now)
        if available_now and interval is not None:
            message = "interval: goes without available_now, which does what is there and ends; leave one of them out"
            raise FrameError(message, "INVALID_INTERVAL")
        with told_as("NO_JAR"):
            check_own_jar()
        interval_ms = _interval_ms("0ms" if interval is None else interval)
        basis, checkpoint = CheckpointIdentity(self.source, self.schema, self.engine), Checkpoint(self.checkpoint)
        with told_as("CHECKPOINT_MISMATCH"):
            lock = lock_for(checkpoint.path, basis)
        try:
            with told_as("CHECKPOINT_MISMATCH"):
                checkpoint.check()
                carried_over = checkpoint.job.carried_over(basis)
                identity = checkpoint.job.open(basis)
            query = self._query(checkpoint, lock, identity)
        except BaseException:
            lock.release()
            raise
        if carried_over:
            _LOG.warning(carried_over)
        query.begin(None if available_now else interval_ms)
        return query

    def _query(self, checkpoint: Checkpoint, lock: Lock, identity: str) -> "StreamQuery":
        assert self.work is not None
        session, say = self.frame.sparkSession, _LOG.warning
        lists = ListBook(checkpoint, {name: WholeList(path) for name, path in self.lists.items()}, say)
        feed = GivenRules() if self.followed is None else RuleFiles(self.followed, self.schema)
        book = RuleBook(checkpoint, feed, self.schema, self.engine, _tell_refused, lists=lists)
        if isinstance(feed, GivenRules):
            with told_as("INVALID_RULES"):
                feed.give(self.rules, book)
        sink = FunctionSink(self.work, self.frame.schema, self.flags, identity)
        remember_shards(session)
        scoring = Scoring(
            arrivals=open_frame(self.frame, self.order, self.schema, by_place, "order_by", self.features),
            terms=Terms(
                event_schema=self.schema,
                engine=self.engine,
                evaluations=self.evaluations,
                features=self.features,
                output=_OUTPUT,
            ),
            checkpoint=checkpoint,
            lock=lock,
            book=book,
            sink=sink,
            partitions=min(self.engine.shards, session.sparkContext.defaultParallelism),
            session=QUERY_SETTINGS,
            patience=Patience(stall_s=math.inf, say=say, explain=explain_store),
            times=TimeNotes(self.schema.event_time, say),
        )
        return StreamQuery(scoring, QueryRules(book, feed, self.check), sink, identity)

    def check(self, rules: Sequence[Rule]) -> None:
        """See that rules can be evaluated; a `FrameError` says what is wrong."""
        schema, engine = self.schema, self.engine

        def fault(rule: Rule) -> str | None:
            return list_fault(rule, self.list_keys) or raw_window_fault(rule, engine, schema)

        with told_as("INVALID_RULES"):
            check_rules(rules, schema)
            refuse(precision_faults("engine settings", rules, engine, schema))
            rule_set = first_version(rules, schema, engine, fault)
        check_columns_of(self.frame, schema, rule_set)
        if self.features:
            beside_kinds(FeatureTable(rule_set, schema, self.flags, refuses_others=False), self.frame.schema)


def stream(
    frame: DataFrame,
    rules: RulesOrPath,
    schema: SchemaOrPath,
    *,
    checkpoint: str | Path,
    order_by: Sequence[str | Column],
    engine: EngineSettings | Mapping[str, Any] | None = None,
    lists: Mapping[str, str | Path] | None = None,
    features: bool = True,
    evaluations: bool = False,
    flags: bool = False,
) -> LiveFrame:
    """Evaluate rules at each row of a streaming DataFrame as it comes: what `buckets run` does, as a library.

    Args:
        frame: one row an event, with the columns that the event schema names: fields of structs and arrays too.
        rules: what `buckets.spark.rules` takes or returns. A path is followed: a batch takes the file as it is then.
        schema: the event schema, as `buckets.spark.schema` takes or returns it.
        checkpoint: a folder for timelines, rules and records of this stream, on a disk that all machines of the session
            mount, or in an object store. It belongs to the sources of the stream, its order and the event schema.
        order_by: the columns that say in which order rows of one batch arrived: whole numbers, dates, timestamps or
            texts. Rows that are equal in a single column come in the order of a hash of all columns, in several columns
            as Spark has read them.
        engine: shards, lateness, collisions and precision, as a model or a dict; the defaults of a job if None.
        lists: by name, the files of the lists that rules look into; they are followed too.
        features: whether batches have `features`.
        evaluations: whether batches have `evaluations`.
        flags: whether to say of each feature whether it is exact, and whether it is warm.

    Raises:
        FrameError: the DataFrame is no stream (`NOT_A_STREAM`); as `buckets.spark.features`; a column cannot give an
            order (`ORDER_TYPE`); the checkpoint is no path of a folder (`INVALID_CHECKPOINT`); an option is not True or
            False (`INVALID_OPTION`).
    """
    check_is_frame(frame)
    if not frame.isStreaming:
        message = "frame: is no stream; read it with spark.readStream, or take bs.features for a batch DataFrame"
        raise FrameError(message, "NOT_A_STREAM")
    check_is_repeatable(frame)
    check_switches(features=features, evaluations=evaluations, flags=flags)
    if not isinstance(checkpoint, str | Path) or not str(checkpoint) or os.path.isfile(checkpoint):
        message = f"checkpoint: must be the path of a folder, not {checkpoint!r}"
        raise FrameError(message, "INVALID_CHECKPOINT")
    with told_as("INVALID_CHECKPOINT"):
        folder = _absolute(checkpoint)
    words, order = _order(frame, order_by)
    list_keys = {name: each.form for name, each in read_lists(lists or {}, are_files=True).items()}
    live = LiveFrame(
        frame=frame,
        rules=read_rules(rules),
        followed=_absolute(rules) if isinstance(rules, str | Path) else None,
        schema=read_schema(schema),
        checkpoint=folder,
        source=f"DataFrame of {_sources(frame)} ordered by {words}",
        order=order,
        engine=engine_settings(engine),
        lists={name: _absolute(path) for name, path in (lists or {}).items()},
        list_keys=list_keys,
        features=features,
        evaluations=evaluations,
        flags=flags,
    )
    live.check(live.rules)
    return live


def _absolute(path: str | Path) -> Path:
    return location(str(path), Path.cwd())


def _sources(frame: DataFrame) -> str:
    """Return the sources of a stream in words, as Spark has them: with a path in brackets, and topics."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    names = []
    for leaf in filter(lambda leaf: leaf.isStreaming(), map(leaves.apply, range(leaves.size()))):
        kind, places = leaf.getClass().getSimpleName(), []
        if kind == "StreamingRelationV2":
            places = [leaf.extraOptions().get(name) for name in _PLACES]
        elif kind == "StreamingRelation":
            options = leaf.dataSource().options()
            places = [options.apply(name) for name in _PLACES if options.contains(name)]
        known = [re.sub(r"^file:/+", "/", place).rstrip("/") for place in places if place]
        names.append(" ".join([leaf.toString().partition("[")[0], *known]) if known else leaf.toString())
    return ", ".join(names)


def _order(frame: DataFrame, order_by: Sequence[str | Column]) -> tuple[str, list[Column]]:
    """Return an order in words, and its columns as `by_place` takes them."""
    keys, words = list[Column](), list[str]()
    for column in order_columns(frame, order_by):
        kind, written = frame.select(column).schema[0].dataType, repr(column).removeprefix("Column<'")[:-2]
        if re.search(r" NULLS (FIRST|LAST)$", written):
            message = f"order_by: {written}: rows of a batch come in ascending order; name the column alone"
            raise FrameError(message, "ORDER_TYPE")
        key = column if isinstance(kind, StringType) else order_number(column, kind)
        if key is None:
            remedy = "name whole numbers, dates, timestamps or texts"
            message = f"order_by: a column of type {kind.simpleString()} gives no order here; {remedy}"
            raise FrameError(message, "ORDER_TYPE")
        keys.append(key)
        words.append(f"{written} {kind.simpleString()}")
    if len(keys) == 1:
        unsigned = hash_of_all(frame).bitwiseXOR(F.lit(-(1 << 63)))
        keys.append(F.shiftrightunsigned(unsigned, 64 - _HASH_BITS))
    return ", ".join(words), keys


def _interval_ms(interval: str) -> int:
    """Read how often batches begin, as Spark or this project write it."""
    written = str(interval).strip()
    spoken = _INTERVAL.fullmatch(written)
    try:
        return parse_duration_ms(written if spoken is None else f"{spoken[1]}{_UNITS[spoken[2]]}")
    except ValueError:
        message = f'interval: must be a text such as "500 milliseconds" or "5s", not {interval!r}'
        raise FrameError(message, "INVALID_INTERVAL") from None


def _tell_refused(refused: Sequence[Refusal]) -> None:
    for refusal in refused:
        _LOG.warning(f"rules stay as they are: {refusal.origin}: {refusal.reason}")

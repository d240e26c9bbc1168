"""What users give to work with DataFrames: rules, an event schema, and a DataFrame whose columns they name.

What is wrong with any of it is a `FrameError`.
"""

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from buckets.config.engine import EngineSettings
from buckets.engine.results.feature_table import FeatureTable
from buckets.errors import BucketsError
from buckets.evaluation import OF_SOURCE
from buckets.events.arrivals import check_columns
from buckets.events.field_paths import containers, reachable
from buckets.events.message_fields import schema_to_read
from buckets.events.schema import EventSchema, load_event_schema
from buckets.lists.index import ListIndex, Lists
from buckets.lists.list_file import load_list
from buckets.outputs.columns import output_columns
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.spark.arrow_types import from_arrow_schema, to_arrow_type
from buckets.spark.frame_rows import numbered_names, quoted
from buckets.spark.scored_batch import in_microseconds
from buckets.stores.location import location
from buckets.validation import did_you_mean, first_fault

RulesOrPath = str | Path | Mapping[str, Any] | Iterable[Rule | Mapping[str, Any]]
SchemaOrPath = str | Path | Mapping[str, Any] | EventSchema
ListsOrPaths = Mapping[str, ListIndex | str | Path]
_SOCKETS = "spark.python.unix.domain.socket.enabled"
_warned = set[str]()  # The sessions in which that was said
_RULES = TypeAdapter(tuple[Rule, ...])


class FrameError(BucketsError, ValueError):
    """Something about a DataFrame, rules or an event schema that a person can fix."""

    def __init__(self, message: str, condition: str) -> None:
        """Keep the message, a line for people, and the condition, a word for programs."""
        super().__init__(message)
        self._condition = condition

    def getCondition(self) -> str:
        """Return the condition, as errors of PySpark do."""
        return self._condition


def rules(source: RulesOrPath) -> tuple[Rule, ...]:
    """Return rules from a file or folder of rules, from one or several as the YAML would give them, or from models.

    Raises:
        FrameError: one is not valid (`INVALID_RULES`).
    """
    with told_as("INVALID_RULES", "rules"):
        if isinstance(source, str | Path):
            return load_rule_files(_path("rules", source))
        given: Any = source
        if isinstance(given, Mapping) and [*given] == ["rules"]:  # what a whole file has
            given = given["rules"]
        if not isinstance(given, Iterable):
            message = f"rules: must be a path, or a list of rules, not {given!r}"
            raise BucketsError(message)
        single = isinstance(given, Mapping | Rule)
        read = _RULES.validate_python((given,) if single else tuple(given))
        if not read:
            message = "rules: there is none; give at least one"
            raise BucketsError(message)
        return read


def schema(source: SchemaOrPath) -> EventSchema:
    """Return an event schema from a file, from what its YAML would give, or from a model.

    Raises:
        FrameError: it is not valid (`INVALID_SCHEMA`).
    """
    with told_as("INVALID_SCHEMA", "schema"):
        if isinstance(source, str | Path):
            return load_event_schema(_path("schema", source))
        return EventSchema.model_validate(source)


def engine_settings(given: EngineSettings | Mapping[str, Any] | None) -> EngineSettings:
    """Return settings of the engine from a model or a dict, or those of a job if None (`INVALID_ENGINE`)."""
    with told_as("INVALID_ENGINE", "engine"):
        return EngineSettings.model_validate({} if given is None else given)


def read_lists(given: ListsOrPaths, *, are_files: bool = False) -> Lists:
    """Return lists by name, from files where their paths are given (`INVALID_LISTS`)."""
    kinds = (str, Path) if are_files else (ListIndex, str, Path)
    if not isinstance(given, Mapping) or not all(isinstance(each, kinds) for each in given.values()):
        or_lists = "" if are_files else ", or lists that buckets.load_list has read,"
        message = f'lists: must be paths of files{or_lists} by name, as in lists={{"blocked": "blocked.csv"}}'
        raise FrameError(message, "INVALID_LISTS")
    with told_as("INVALID_LISTS"):
        known = (each if isinstance(each, ListIndex) else load_list(_path("lists", each)) for each in given.values())
        return dict(zip(given, known, strict=True))


def _path(name: str, given: str | Path) -> Path:
    """Return where a path leads; BucketsError if it is empty, which would be the current folder."""
    if not str(given):
        message = f"{name}: the path is empty; name a file"
        raise BucketsError(message)
    return location(str(given))


@contextmanager
def told_as(condition: str, *where: str | int) -> Iterator[None]:
    """Raise what is found wrong as a `FrameError`; `where` is the location of a value that is read."""
    try:
        yield
    except FrameError:
        raise
    except BucketsError as error:
        raise FrameError(error.message, getattr(error, "condition", condition)) from None
    except ValidationError as error:
        raise FrameError(first_fault(error, where)[1], condition) from None


def check_columns_of(frame: DataFrame, schema: EventSchema, rule_set: RuleSet) -> None:
    """See that a DataFrame has the columns that an event schema needs and that rules read, each once.

    Raises:
        FrameError: one is missing (`COLUMN_MISSING`) or there twice (`COLUMN_TWICE`), or cannot be read by Python
            (`COLUMN_TYPE`); the id of events is made of what rows of a DataFrame do not have (`NO_EVENT_ID`).
    """
    if schema.identity.row:
        message = (
            "event_id: is made of a row's place, and rows of a DataFrame have none; name a column, or {hash: [...]}"
        )
        raise FrameError(message, "NO_EVENT_ID")
    twice = next((name for name in frame.columns if frame.columns.count(name) > 1 and reads(schema, name)), None)
    if twice is not None:
        message = f"frame: has two columns {twice!r}; each that is read needs a name of its own"
        raise FrameError(message, "COLUMN_TWICE")
    with told_as("COLUMN_MISSING"):
        there = reachable(schema_to_read(schema).field_names, arrow_schema(frame))
        check_columns(there, schema_to_read(schema), "frame")
        missing = sorted(schema.read_for(rule_set.named_fields).difference(schema.declared(there), [schema.event_id]))
        if missing:
            message = f"frame: has no column {missing[0]!r}, which a rule reads; give it one, or leave the rule out"
            raise BucketsError(message)


def check_is_frame(frame: DataFrame, name: str = "frame") -> None:
    """See that something is a DataFrame of a session in this process; a `FrameError` says what else it is."""
    if not isinstance(frame, DataFrame) or getattr(frame, "_jdf", None) is None:
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
        message = (
            f"{name}: must be a DataFrame of a session in this process, not {kind}; Spark Connect has no such session"
        )
        raise FrameError(message, "NOT_A_FRAME")
    context = frame.sparkSession.sparkContext
    if context._jsc is None:
        message = f"{name}: its session has been stopped; make it again in another one"
        raise FrameError(message, "NOT_A_FRAME")
    _warn_of_sockets(context)
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable  # Spark would take whatever is called python3 on the PATH


def _warn_of_sockets(context: SparkContext) -> None:
    """Warn once in a session whose tasks talk to Python over TCP."""
    has_own = context.getConf().get(_SOCKETS, os.environ.get("PYSPARK_UDS_MODE", "false"))
    if has_own.lower() != "true" and context.applicationId not in _warned:
        _warned.add(context.applicationId)
        message = f"over TCP a large task may wait for ever: set {_SOCKETS} to true, as bs.session_settings() does"
        warnings.warn(message, stacklevel=5)  # Of whoever has called features


def check_is_repeatable(frame: DataFrame, what: str = "frame") -> None:
    """See that rows are the same each time they are read, as they are more than once (`NOT_DETERMINISTIC`)."""
    if not frame._jdf.queryExecution().analyzed().deterministic():
        message = (
            f"{what}: comes out otherwise each time that it is computed, as rand(), uuid() and "
            "monotonically_increasing_id() do; write the rows to a table first, or take another column"
        )
        raise FrameError(message, "NOT_DETERMINISTIC")


def order_columns(frame: DataFrame, order_by: Sequence[str | Column], *more: Column) -> list[Column]:
    """Return the columns that say in which order rows arrived, at least one (`ORDER_MISSING`); `COLUMN_MISSING`."""
    is_one = isinstance(order_by, str | Column) or not isinstance(order_by, Iterable)
    columns: list[Any] = [] if is_one else list(order_by)
    if not columns:
        message = 'order_by: must be a list of at least one column, as in order_by=["ts", "txn_id"]'
        raise FrameError(message, "ORDER_MISSING")
    # They would log what is raised here, with Java's stack.
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    for logger in loggers:
        logger.disabled = True
    try:
        for at, given in enumerate(columns):
            if isinstance(given, str):
                columns[at] = F.col(quoted(given) if given in frame.columns else given)
            check_is_repeatable(frame.select(columns[at], *more), "order_by")
            frame.sortWithinPartitions(columns[at])
    except (AnalysisException, PySparkTypeError) as error:
        hint = "" if str(given) in frame.columns else did_you_mean(str(given), frame.columns)
        message = f"order_by: {given!r} gives no order ({error.getCondition()}) of {', '.join(frame.columns)}{hint}"
        raise FrameError(message, "COLUMN_MISSING") from None
    finally:
        for logger in loggers:
            logger.disabled = False
    return columns


def check_switches(**given: object) -> None:
    """See that options by name are True or False (`INVALID_OPTION`)."""
    for name, value in given.items():
        if not isinstance(value, bool):
            message = f"{name}: must be True or False, not {value!r}"
            raise FrameError(message, "INVALID_OPTION")


def reads(schema: EventSchema, column: str) -> bool:
    """Return whether a column of a DataFrame is a field of events, or has some in it."""
    names = schema_to_read(schema).field_names
    return column in names or column in containers(names)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns as they travel; one that cannot is refused."""
    kinds: list[pa.Field] = []
    for field in frame.schema.fields:
        try:
            kinds.append(pa.field(field.name, to_arrow_type(field.dataType)))
        except PySparkTypeError:
            message = f"column {field.name}: is of type {field.dataType.simpleString()}; cast it, or leave it out"
            raise FrameError(message, "COLUMN_TYPE") from None
    return pa.schema(kinds)


def hash_of_all(frame: DataFrame) -> Column:
    """Return the hash of all columns, by which rows that are equal in the order come."""
    columns = [F.col(quoted(name)) for name in frame.columns]
    has_no_hash = [any(kind in field.dataType.simpleString() for kind in ("map<", "variant")) for field in frame.schema]
    hashable = [
        F.to_json(F.struct(column)) if is_hashed_as_text else column
        for column, is_hashed_as_text in zip(columns, has_no_hash, strict=True)
    ]
    return F.xxhash64(*(hashable if any(has_no_hash) else ["*"]))


def output_kinds(schema: EventSchema) -> dict[str, pa.Schema]:
    """Return the outputs and their columns, as DataFrames have them: without those that say where rows stood."""
    return {
        name: in_microseconds(pa.schema([field for field in written if field.name not in OF_SOURCE]))
        for name, written in output_columns(schema.largest_scale).items()
    }


def beside_kinds(table: FeatureTable, frame: StructType) -> StructType:
    """Return the columns of features, none of which a DataFrame may have already (`COLUMN_TAKEN`)."""
    kinds = from_arrow_schema(in_microseconds(table.beside_columns))
    taken = {name.casefold() for name in frame.names} & {name.casefold() for name in kinds.names}
    if taken:
        names = ", ".join(sorted(taken))
        message = (
            f"columns {names}: the result has columns of these names besides; rename yours, drop them, or give all "
            "rules to one call"
        )
        raise FrameError(message, "COLUMN_TAKEN")
    return kinds


def numbered_kinds(kinds: Sequence[StructField]) -> StructType:
    """Return columns under numbered names: Spark finds no column by a name with a point, or one that is there twice."""
    names = numbered_names(len(kinds))
    return StructType(
        [StructField(to, kind.dataType, kind.nullable, kind.metadata) for to, kind in zip(names, kinds, strict=True)]
    )

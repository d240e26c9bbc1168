"""An output: a table that scoring fills, and all that the sinks, the audit and replays have to know of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


USUAL_SCALE = 12
"""The scale for which tables of an audit have room, whatever the event schema; with larger ones they have more."""


def value_type(largest_scale: int) -> pa.DataType:
    """Return the type of values: a decimal with room for any 64-bit sum and for an average's extra digits.

    So it is of all measures of an event schema, whose scales differ by `MOST_APART` at most.
    """
    return pa.decimal128(38, largest_scale + 6)


VALUE = value_type(USUAL_SCALE)
"""The type that stands for values where outputs are declared, and that of most tables of an audit."""


@dataclass(frozen=True)
class Check:
    """What every row of a table of the audit fulfils.

    It is written twice: as SQL, for Spark and delta-rs alike, which Delta holds every writer to; and as a function,
    which puts a message aside that does not fulfil it, before it could make a whole batch fail. A test compares both.
    """

    name: str  # of the constraint
    sql: str  # as Spark's SQL
    holds: Callable[[Row], bool]  # the same for a row in Python


@dataclass(frozen=True)
class Published:
    """How rows go out as messages, and how the audit keeps these as a table."""

    contract: str  # the schema of a message, its name and version in `schemas`, such as `alert-v2`
    checks: tuple[Check, ...] = ()  # what every row fulfils, besides what the schema says of single fields
    identity: str = "id"  # the field by which repeats are recognised
    # columns in which a repeat equals the first message, so that only rows like it are searched; without any, all are
    repeats_share: tuple[str, ...] = ("day", "position")

    @property
    def version(self) -> int:
        """Return the version of its contract."""
        return int(self.contract.rpartition("-v")[2])


@dataclass(frozen=True)
class Output:
    """A table that scoring fills."""

    # of its table, its file of JSON lines, its topic unless the configuration names another one, and of its table in
    # what `buckets.evaluate` returns
    name: str
    columns: Iterable[pa.Field]  # its columns inside the query; values have the type `VALUE`
    published: Published | None = None  # how its rows go out as messages; None where it has no topic
    # columns that tell its rows apart, by which a replay pairs them with recorded ones; a replay leaves an output
    # without any out
    identity: tuple[str, ...] = ()

    def columns_for(self, largest_scale: int) -> pa.Schema:
        """Return its columns with the digits that values of an event schema have."""
        kind = value_type(largest_scale)
        return pa.schema([field.with_type(kind) if field.type == VALUE else field for field in self.columns])

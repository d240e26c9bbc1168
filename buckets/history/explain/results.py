"""What a job has put out, looked up by alert, by event and by rule: the tables of its output, or of its audit."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from buckets.config.job import Job
from buckets.delta.column_name import quoted_column
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError, first_line
from buckets.events.schema import EventSchema
from buckets.numbers.decimal128 import MOST_DIGITS
from buckets.numbers.fixed_point import format_scaled
from buckets.outputs import columns

Row = dict[str, Any]
OF_ALERTS = (columns.ALERTS, columns.SHADOW_ALERTS, columns.HELD_ALERTS)


@dataclass(frozen=True)
class RecordedResults:
    """The tables of results; moments are in ms since the epoch.

    Attributes:
        folder: where they are; None of a job whose results go to topics that nobody keeps.
    """

    folder: Path | None

    @staticmethod
    def of(job: Job) -> "RecordedResults":
        """Those of a job."""
        if job.settings.output.kind == "delta":
            return RecordedResults(Path(job.settings.output.path))
        return RecordedResults(Path(job.settings.audit.path) if job.settings.audit is not None else None)

    def has(self, output: str) -> bool:
        """Whether there is a table of an output."""
        return self.folder is not None and (self.folder / output / "_delta_log").exists()

    def alert(self, alert_id: str) -> tuple[str, Row] | None:
        """An alert by its id, and the output that it is in."""
        for output in OF_ALERTS:
            found = self.rows(output, [f"alert_id = {sql_text(alert_id)}"])
            if found:
                return output, found[0]
        return None

    def of_event(self, output: str, rule_id: str, event_id: str, time_ms: int) -> list[Row]:
        """The rows of a rule at an event."""
        tests = [f"rule_id = {sql_text(rule_id)}", f"event_id = {sql_text(event_id)}"]
        return self.rows(output, [*tests, f"event_time = {sql_moment(time_ms)}"])

    def alerts_of(self, output: str, rule_ids: Collection[str], keys: Collection[str], from_ms: int) -> list[Row]:
        """The alerts of rules from a time on.

        Args:
            output: which of `OF_ALERTS`.
            rule_ids: the rules; empty for all.
            keys: the texts of their keys; empty for all.
            from_ms: the first event time.
        """
        tests = [f"event_time >= {sql_moment(from_ms)}"]
        for name, values in (("rule_id", rule_ids), ("key", keys)):
            tests += [f'"{name}" in ({", ".join(map(sql_text, values))})'] if values else []
        return self.rows(output, tests)

    def dead_letters(self, positions: Iterable[int]) -> list[Row]:
        """Dead letters at some positions of their sources."""
        listed = ", ".join(map(str, sorted(set(positions))))
        return self.rows(columns.DEAD_LETTERS, [f"position in ({listed})"]) if listed else []

    def rows(self, output: str, tests: Iterable[str]) -> list[Row]:
        """The rows of an output that pass tests in SQL; none where there is no such table.

        Raises:
            BucketsError: it cannot be read.
        """
        if not self.has(output):
            return []
        assert self.folder is not None
        path = self.folder / output
        try:
            query = f"select * from results where {' and '.join(tests)}"
            found = pa.table(QueryBuilder().register("results", open_table(path)).execute(query).read_all())
        except Exception as error:  # deltalake raises plain ones for files that are gone or broken
            message = f"results {path}: the table cannot be read ({first_line(error)})"
            raise BucketsError(message) from None
        return rows_of(found)


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table, with moments in ms since the epoch."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            in_ms = table.column(index).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            table = table.set_column(index, field.name, in_ms)
    rows: list[Row] = table.to_pylist()
    return rows


def sql_text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_is(schema: EventSchema, field: str, value: str | int | bool) -> str:
    """Return the test in SQL for a field of the archive that has a value; of a measure a scaled integer."""
    column, measure = quoted_column(field), schema.measures.get(field)
    if measure is not None:  # a plain number would be a float, in which amounts are not exact
        text = format_scaled(int(value), measure.scale)
        return f"{column} = arrow_cast({sql_text(text)}, 'Decimal128({MOST_DIGITS}, {measure.scale})')"
    return f"{column} = {sql_text(value) if isinstance(value, str) else str(value).lower()}"


def sql_moment(time_ms: int) -> str:
    """A moment in SQL, of the very type that tables keep, so that their statistics apply."""
    return f"arrow_cast({time_ms * 1000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"

"""Steps of a sequence: `login`, `amount > 500`, or `{transfer: "amount > 500"}`.

With a `step_field`, a step is a value of that field, and a mapping adds a filter to the value. Without it, a step is a
filter in SQL, and a mapping gives it a name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from buckets.duration import format_duration
from buckets.events.derived_fields import renamed_sql
from buckets.expressions.expression import quoted_name, quoted_text
from buckets.printable import one_line, short_line
from buckets.rules.condition import SqlFilter, parse_sql_filter

MOST_STEPS: Final = 10


@dataclass(frozen=True)
class Step:
    """A step, as written."""

    name: str  # what it is called; a value of the field of steps, or a filter where `sql` is None and there is no field
    sql: str | None = None  # a filter beside the name; None for none


def parse_step(written: Any) -> Step:
    """Parse a step as written; ValueError unless it is a text or a mapping from one text to another."""
    if isinstance(written, Step):
        return written
    ((name, sql),) = written.items() if isinstance(written, Mapping) and len(written) == 1 else ((written, ""),)
    if not isinstance(name, str) or not isinstance(sql, str) or not name.strip():
        message = f"{short_line(repr(written))} is no step; write login, a filter in SQL, or {{transfer: amount > 500}}"
        raise ValueError(message)
    return Step(name, sql if isinstance(written, Mapping) else None)


def _write_step(step: Step) -> str | dict[str, str]:
    return step.name if step.sql is None else {step.name: step.sql}


StepField = Annotated[Step, BeforeValidator(parse_step), PlainSerializer(_write_step)]
"""A step as a field of a model: read and written as people write it."""


@lru_cache(maxsize=4_096)
def step_filter(step: Step, field: str | None) -> SqlFilter:
    """Return the filter that events pass to be a step; ValueError names the column of a fault."""
    if field is None:
        where = parse_sql_filter(step.name if step.sql is None else step.sql)
    else:
        is_value = f"{quoted_name(field)} = {quoted_text(step.name)}"
        where = parse_sql_filter(is_value)
        if step.sql is not None:
            parse_sql_filter(step.sql)
            where = parse_sql_filter(f"{is_value} AND ({step.sql})")
    if where.names_this:
        message = f"{short_line(where.text)}: a step says what an event is by itself; it cannot name `this`"
        raise ValueError(message)
    return where


def check_step(name: str, step: Step, field: str | None) -> None:
    """Check that a step can be parsed, naming its place by `name`; ValueError names the fault."""
    if field is not None and step.sql is None and _is_comparison(step.name):
        message = (
            f"{name}: {short_line(step.name)} would be a value of {field}, the field of steps, and reads as a filter; "
            "write {VALUE: FILTER}, or leave out `step_field` and write all steps as filters"
        )
        raise ValueError(message)
    try:
        step_filter(step, field)
    except ValueError as error:
        hint = "" if field is not None else "; name the field of which steps are values, if they are, by `step_field`"
        message = f"{name}: {error}{hint}"
        raise ValueError(message) from None


def _is_comparison(text: str) -> bool:
    if not any(sign in text for sign in "=<>"):
        return False
    try:
        parse_sql_filter(text)
    except ValueError:
        return False
    return True


def renamed_step(written: str | dict[str, str], field: str | None, names: Mapping[str, str]) -> str | dict[str, str]:
    """Return a step in its written form, with fields renamed by `names` (old to new)."""
    if isinstance(written, dict):
        return {name: renamed_sql(sql, names) for name, sql in written.items()}
    return written if field is not None else renamed_sql(written, names)


def steps_in_words(steps: Iterable[Step], field: str | None, without: Step | None, within_ms: int | None) -> str:
    """Return steps in a sentence: `type login, then transfer (amount > 500), without logout between`.

    With a time `within_ms`: `type order, without receipt within 1h`.
    """
    names = ", then ".join(map(step_in_words, steps))
    where = "between" if within_ms is None else f"within {format_duration(within_ms)}"
    ends = "" if without is None else f", without {step_in_words(without)} {where}"
    return f"{'' if field is None else f'{field} '}{names}{ends}"


def step_in_words(step: Step) -> str:
    """Return a step in a sentence: `transfer (amount > 500)`."""
    return one_line(step.name if step.sql is None else f"{step.name} ({step.sql})")

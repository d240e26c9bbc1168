"""Filters of features that name the event whose window it is: `amount > 2 * this.amount`, `country <> this.country`."""

from collections.abc import Iterable
from functools import lru_cache, reduce

from buckets.events.schema import EventSchema
from buckets.expressions.expression import THIS, Expression, conjuncts, to_sql
from buckets.rules.condition import SqlFilter, check_sql, empty_lists, matches_sql, try_out
from buckets.rules.filter import Filter


def names_this(where: Filter | None) -> bool:
    """Return whether a filter names the event whose window it is."""
    return isinstance(where, SqlFilter) and where.names_this


def field_of(name: str) -> str:
    """Return the field of a name, be it of this event or of one in its window."""
    return name.removeprefix(THIS)


def window_fields(where: SqlFilter) -> list[str]:
    """Return the fields of events in the window that a filter names, each once."""
    return [name for name in dict.fromkeys(where.expression.fields()) if not name.startswith(THIS)]


@lru_cache(maxsize=4_096)
def split_filter(where: Filter) -> tuple[Filter, SqlFilter | None]:
    """Return what of a filter an event passes by itself, and what it has to be to this event; None for anything."""
    if not isinstance(where, SqlFilter) or not names_this(where):
        return where, None
    parts = list(conjuncts(where.expression))
    with_this = [part for part in parts if any(name.startswith(THIS) for name in part.fields())]
    alone = [part for part in parts if part not in with_this]
    return _all_of(alone) or (), _all_of(with_this)


def _all_of(parts: Iterable[Expression]) -> SqlFilter | None:
    listed = list(parts)
    if not listed:
        return None
    joined = reduce(lambda one, other: Expression("and", (one, other)), listed)
    return SqlFilter(joined, to_sql(joined))


def with_this(schema: EventSchema) -> EventSchema:
    """Return an event schema with each attribute and measure twice, once as that of this event."""
    attributes = {THIS + name: kind for name, kind in schema.attributes.items()}
    measures = {THIS + name: measure for name, measure in schema.measures.items()}
    update = {"attributes": {**schema.attributes, **attributes}, "measures": {**schema.measures, **measures}}
    return schema.model_copy(update=update)


def check_this_filter(where: SqlFilter, schema: EventSchema) -> None:
    """See that such a filter fits the event schema and can be evaluated; ValueError says what does not."""
    both, time = with_this(schema), schema.event_time.field
    beside = split_filter(where)[1]
    assert beside is not None
    for name in where.expression.fields():
        message = ""
        if name == time and time not in beside.expression.fields():
            continue  # An event passes that part by itself.
        if field_of(name) == time:
            message = (
                f"{name} does not stand beside `this`; a test of {time} by itself may be joined by AND, as in "
                f"hour({time}) < 6 AND amount > this.amount"
            )
        elif field_of(name) not in schema.attributes and field_of(name) not in schema.measures:
            message = f"{name}: no such attribute or measure in event schema {schema.name!r}"
        if message:
            raise ValueError(message)
    check_sql(where.text, {}, both)
    try_out(where, both, lambda columns: matches_sql(where, columns, both, empty_lists(where)))

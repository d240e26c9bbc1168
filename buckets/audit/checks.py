"""What the schema of messages says of single fields, as checks of the rows of the audit's tables."""

from collections.abc import Callable, Iterable
from typing import Any

from buckets.outputs.contract import Field
from buckets.outputs.output import Check, Row


def field_checks(field: Field) -> Iterable[Check]:
    """Yield what a schema says of single values: ids are not empty, numbers not too small, choices are kept to."""
    name = field.name
    if name.endswith("id") and field.shortest:
        sql = f"{name} <> ''"
        yield Check(f"{name}_is_not_empty", f"{name} IS NULL OR {sql}" if field.nullable else sql, _not_empty(name))
    if field.minimum is not None:
        sql = f"{name} >= {field.minimum}"
        is_large = _at_least(name, field.minimum)
        yield Check(f"{name}_is_large_enough", f"{name} IS NULL OR {sql}" if field.nullable else sql, is_large)
    if field.kind == "text" and field.choices:
        listed = ", ".join(f"'{choice}'" for choice in field.choices if choice is not None)
        sql = f"{name} IN ({listed})"
        is_known = _among(name, field.choices)
        yield Check(f"{name}_is_known", f"{name} IS NULL OR {sql}" if field.nullable else sql, is_known)


def _not_empty(name: str) -> Callable[[Row], bool]:
    return lambda row: row[name] != ""


def _at_least(name: str, minimum: int) -> Callable[[Row], bool]:
    return lambda row: row[name] is None or bool(row[name] >= minimum)


def _among(name: str, choices: tuple[Any, ...]) -> Callable[[Row], bool]:
    return lambda row: row[name] is None or row[name] in choices

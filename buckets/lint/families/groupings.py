"""Groupings with so few keys that all events land on one, or on a handful: one core scores a key at a time."""

from collections.abc import Iterator
from math import prod

from buckets.lint.logic import filter_condition, given
from buckets.lint.subject import Code, Finding, Subject, event_facts
from buckets.rules.filter import Filter
from buckets.rules.rule import Rule

FEW_KEYS = Code(
    "B401",
    "warning",
    "a grouping that can have a few keys only",
    "grouping by {by} makes {count} of all events, and one core scores a key's events one after the other; group by a "
    "field with many values too",
)
FEWEST = 8  # Fewer keys than this are few


def find(subject: Subject) -> Iterator[Finding]:
    """Look at each grouping of each rule."""
    for rule in subject.rules:
        # There are few alerts.
        for path, fields, where in groupings_of(rule) if rule.on == "events" else ():
            keys = _most_keys(subject, rule, fields, where)
            if keys is None or keys >= FEWEST:
                continue
            by = "no field" if not fields else " and ".join(fields)
            count = "one key" if keys == 1 else f"at most {keys} keys"
            yield FEW_KEYS.at(rule, path, by=by, count=count)


def groupings_of(rule: Rule) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Filter]]:
    """Yield where each grouping is written, its fields, and the filter of its group."""
    yield ("group_by",), rule.group_by, rule.group_where
    for name, feature in rule.features.items():
        if feature.group_by is not None and not feature.aggregate.by_value:
            yield ("features", name, "group_by"), feature.group_by, ()


def _most_keys(subject: Subject, rule: Rule, fields: tuple[str, ...], where: Filter) -> int | None:
    """Return how many keys there can be; None if very many, or none at all."""
    schema = subject.schema_of(rule)
    facts = given(filter_condition(where, schema), event_facts(rule, schema))
    if facts is None:
        return None
    sizes = [facts.of_name(field).size for field in fields]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None

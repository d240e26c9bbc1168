"""Snoozes of rules: parsed as people write them, added, and ended."""

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.moment import in_utc, moment_ms, time_text
from buckets.printable import short_line
from buckets.rules.policies import MOST_SNOOZES, Snooze, key_fault, key_texts
from buckets.rules.rule import Rule

if TYPE_CHECKING:
    from buckets.changes.origin import JobRules

Key = dict[str, str | int | bool]
ChangeOf = Callable[[Rule], tuple[Snooze, ...] | None]
"""Returns the new snoozes of a rule; None if nothing changes."""


def rules_with_snoozes(
    kept: "JobRules", schema: EventSchema, rule_id: str | None, key: Key | None, change_of: ChangeOf
) -> list[Rule]:
    """Return the rules whose snoozes change: one rule, or all that group by the fields of a key.

    BucketsError if there is no such rule, the key does not fit, or nothing changes.
    """
    rules = kept.rules if rule_id is None else [kept.rule(rule_id)]
    if rule_id is None:
        assert key is not None
        rules = [rule for rule in rules if set(rule.group_by) == set(key)]
        if not rules:
            message = f"--key: no rule in {kept.name} groups by {', '.join(key)}; rules there group by other fields"
            raise BucketsError(message)
    for rule in rules:
        fault = None if key is None else key_fault(key, rule.group_by, schema)
        if fault is not None:
            message = f"--key: {fault} (rule {rule.rule_id!r})"
            raise BucketsError(message)
    changes = ((rule, change_of(rule)) for rule in rules)
    changed = [rule.model_copy(update={"snoozes": after}) for rule, after in changes if after is not None]
    if not changed:
        message = f"nothing to change in {kept.name}: `buckets snooze --list` shows the snoozes there are"
        raise BucketsError(message)
    return changed


def with_snooze(rule: Rule, new: Snooze, now: datetime) -> tuple[Snooze, ...] | None:
    """Add a snooze to those of a rule; if there are too many, drop those that ended first."""
    if new in rule.snoozes:
        return None
    snoozes = list(rule.snoozes)
    while len(snoozes) >= MOST_SNOOZES:
        oldest = min(snoozes, key=lambda snooze: snooze.until)
        if oldest.until > now:
            message = f"rule {rule.rule_id!r} has {MOST_SNOOZES:,} snoozes in force, which is the limit; end some first"
            raise BucketsError(message)
        snoozes.remove(oldest)
    return (*snoozes, new)


def with_ended(rule: Rule, key: Key | None, last: datetime) -> tuple[Snooze, ...] | None:
    """End at `last` the snoozes of a rule for a key, None for all keys; None if none of them would last longer."""
    left = []
    for snooze in rule.snoozes:
        is_meant = same_key(snooze.key, key) and snooze.until > last
        if not is_meant:
            left.append(snooze)
        elif snooze.start is None or snooze.start < last:
            left.append(snooze.model_copy(update={"until": last}))
    return None if tuple(left) == rule.snoozes else tuple(left)


def same_key(one: Mapping[str, str | int | bool] | None, other: Key | None) -> bool:
    """Return whether two keys are equal; None means all keys."""
    if one is None or other is None:
        return one is None and other is None
    return set(one) == set(other) and key_texts(one) == key_texts(other)


def new_snooze(asked: Mapping[str, Any]) -> Snooze:
    """Make a snooze from its fields; BucketsError if it has no reason, or begins after its end."""
    try:
        snooze = Snooze.model_validate(asked)
    except ValidationError:
        message = "--reason: why are alerts held back? Whoever misses one wants to know"
        raise BucketsError(message) from None
    if snooze.start is not None and snooze.start >= snooze.until:
        message = (
            f"--from: {time_text(moment_ms(snooze.start))} is not before --until {time_text(moment_ms(snooze.until))}"
        )
        raise BucketsError(message)
    return snooze


def read_key(text: str, kinds: Mapping[str, str]) -> Key:
    """Parse a key written as `field=value,field=value` or as JSON, with values of the kinds of their fields.

    ValueError says why it is neither.
    """
    if text.lstrip().startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError as error:
            message = f"{short_line(repr(text))} is not JSON: {error}"
            raise ValueError(message) from None
        wrong = [field for field, value in fields.items() if not isinstance(value, str | int | bool)]
        if wrong:
            message = f"{short_line(wrong[0])} must be a text, a whole number, true or false"
            raise ValueError(message)
        return dict(fields)
    key: Key = {}
    for part in text.split(","):
        field, is_given, value = part.partition("=")
        if not is_given or not field.strip() or field.strip() in key:
            message = (
                f"{short_line(repr(text))} is not of the form FIELD=VALUE,FIELD=VALUE with each field once; "
                "write a value with a comma as JSON"
            )
            raise ValueError(message)
        kind, key[field.strip()] = kinds.get(field.strip()), value
        # A value that is not of its kind stays a text, and does not fit the rule then.
        if kind == "boolean" and value in ("true", "false"):
            key[field.strip()] = value == "true"
        elif kind == "long" and value.removeprefix("-").isdecimal() and value.isascii():
            key[field.strip()] = int(value)
    return key


def read_moment(text: str, now: datetime) -> datetime:
    """Parse a time in ISO 8601, by default in UTC, or a duration from now; ValueError if it is neither."""
    with contextlib.suppress(ValueError):
        return now + timedelta(milliseconds=parse_duration_ms(text))
    with contextlib.suppress(ValueError):
        return in_utc(datetime.fromisoformat(text))
    how = "write it as in 2027-01-02T06:00Z, or how long from now, as in 24h"
    message = f"{short_line(repr(text))} is not a time; {how}"
    raise ValueError(message)

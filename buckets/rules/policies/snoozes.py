"""`snoozes`: times in which alerts of a rule, or of one of its keys, are held back."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from buckets.events.schema import AttributeType, EventSchema
from buckets.moment import Moment, brief_time_text, exact_time_text, moment_ms
from buckets.printable import one_line, short_line
from buckets.rules.policies.policy import AlertPolicy, EarlierAlerts, FiredAt, KeyTexts, key_texts
from buckets.rules.policies.rule_state import RuleState

MOST_SNOOZES = 1000
MOST_SNOOZES_TOLD = 3
"""So many snoozes are told one by one; of the others there is only the number."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


class Snooze(BaseModel):
    """A time in which alerts of a rule, or of one of its keys, are held back.

    Attributes:
        key: the values of the rule's grouping fields; None for all keys.
        start: from which event time on; None: from any.
        until: the first event time at which it is over.
        reason: why.
        author: who asked for it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    key: dict[str, str | int | bool] | None = Field(default=None, min_length=1)
    start: Moment | None = Field(default=None, alias="from")
    until: Moment
    reason: str = Field(min_length=1, max_length=2000)
    author: str = Field(default="", max_length=2000)


class Snoozes(AlertPolicy[tuple[Snooze, ...]]):
    """Holds back alerts of some times."""

    field = "snoozes"
    held_by = "snooze"

    @cached_property
    def _times_ms(self) -> dict[KeyTexts | None, list[tuple[int | None, int, int]]]:
        """From when and until when, None for ever since, and the index of the snooze, by key; None for all keys."""
        times_ms: dict[KeyTexts | None, list[tuple[int | None, int, int]]] = {}
        for number, snooze in enumerate(self.written):
            start_ms = None if snooze.start is None else moment_ms(snooze.start)
            key = None if snooze.key is None else key_texts(snooze.key)
            times_ms.setdefault(key, []).append((start_ms, moment_ms(snooze.until), number))
        return times_ms

    def _in_force(self, fired: FiredAt) -> Iterator[int]:
        """Return the indices of the snoozes that hold the time and the key of an event."""
        for start_ms, end_ms, number in (*self._times_ms.get(None, ()), *self._times_ms.get(fired.key(), ())):
            if (start_ms is None or start_ms <= fired.time_ms) and fired.time_ms < end_ms:
                yield number

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether one of them is in force."""
        return next(self._in_force(fired), None) is not None

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Say of each that is in force who asked for it, and why."""
        for number in sorted(self._in_force(fired)):
            snooze = self.written[number]
            by = f", by {snooze.author}" if snooze.author else ""
            until = exact_time_text(moment_ms(snooze.until))
            yield f"snoozed for {_keys(snooze)} until {until}{by}: {snooze.reason}"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say for whom and until when, of the first few."""
        for snooze in self.written[:MOST_SNOOZES_TOLD]:
            start = f"from {brief_time_text(moment_ms(snooze.start))} " if snooze.start is not None else ""
            until = brief_time_text(moment_ms(snooze.until))
            yield one_line(f"snoozed for {_keys(snooze)} {start}until {until} ({snooze.reason})")
        more = len(self.written) - MOST_SNOOZES_TOLD
        if more > 0:
            yield f"{more:,} more {'snooze' if more == 1 else 'snoozes'}"

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return reasons and authors."""
        for index, snooze in enumerate(self.written):
            yield (str(index), "reason"), snooze.reason
            yield (str(index), "author"), snooze.author

    def faults(self, group_by: Sequence[str], schema: EventSchema) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return what keeps values from being keys of the rule."""
        for index, snooze in enumerate(self.written):
            fault = None if snooze.key is None else key_fault(snooze.key, group_by, schema)
            if fault is not None:
                yield (str(index), "key"), fault


def _keys(snooze: Snooze) -> str:
    return ", ".join(f"{field} {value}" for field, value in (snooze.key or {}).items()) or "all keys"


def key_fault(key: Mapping[str, str | int | bool], group_by: Sequence[str], schema: EventSchema) -> str | None:
    """Return what keeps values from being a key of a rule, if anything."""
    if set(key) != set(group_by):
        wanted = ", ".join(group_by) or "no field, so leave the key out"
        return f"names {short_line(', '.join(key))}, and the rule groups by {wanted}; name exactly these"
    for field, value in key.items():
        kind = schema.attributes.get(field)
        if kind is not None and not _is_of_kind(value, kind):
            return f"{field}: {short_line(repr(value))} is no {_KINDS[kind]}; write {_EXAMPLES[kind]}"
    return None


_KINDS: dict[AttributeType, str] = {"string": "text", "long": "whole number of 64 bits", "boolean": "boolean"}
_EXAMPLES: dict[AttributeType, str] = {"string": '"p-17"', "long": "17", "boolean": "true or false"}


def _is_of_kind(value: str | int | bool, kind: AttributeType) -> bool:
    """Return whether a value is of a kind; in YAML numbers and booleans are text."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    is_whole = not isinstance(value, bool) and _WHOLE.fullmatch(str(value)) is not None
    return is_whole and -(2**63) <= int(value) < 2**63

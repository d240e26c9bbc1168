"""The policies of alerts (`snoozes`, `require_warm`, `cooldown`, …), and what they remember of a rule and a key."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pydantic import ConfigDict, Field

from buckets.duration import format_duration
from buckets.events.schema import AttributeType, EventSchema
from buckets.moment import Moment, brief_time_text, exact_time_text, moment_ms
from buckets.printable import one_line, short_line, value_text
from buckets.validation import Checked


class RuleState(NamedTuple):
    """The state of a rule for a key."""

    # the greatest time of an event that made an alert, in ms; None where none did, or nothing asks for it
    alert_ms: int | None = None
    held_back: int = 0  # how many alerts have been held back since the last one
    reset_ms: int | None = None  # when counting started again, in ms; None where it never did
    # the greatest time of an event whose alert has been held back since the last one; None where none was
    held_ms: int | None = None

    def at(self, clock_ms: int, quiet_ms: int | None, window_ms: int) -> "RuleState":
        """Return the state that counts when the clock of the key has reached a time.

        Held-back alerts are forgotten once they, and the time until which the rule is quiet (None if its policies need
        no state), are older than the longest window of the group. After that the key may be evicted, at a moment that
        depends on the batches, and this must make no difference.
        """
        if self.held_ms is None:
            return self
        last_ms = self.held_ms if quiet_ms is None else max(self.held_ms, quiet_ms)
        return self._replace(held_back=0, held_ms=None) if clock_ms > last_ms + window_ms else self


NOTHING = RuleState()


KeyTexts = tuple[str, ...]  # The values of a key's fields as text, in the order of the names of the fields
Setting = TypeVar("Setting")  # What the field of a rule says


class FiredAt(NamedTuple):
    """An event at which a rule fired."""

    time_ms: int  # when it happened
    is_warm: bool  # whether all windows of the rule are complete
    key: Callable[[], KeyTexts]  # returns its key


class EarlierAlerts(Protocol):
    """The recorded alerts of a rule and key before an event."""

    @property
    def origin(self) -> str:
        """A remark after the name of an alert on where it comes from; empty if it is recorded."""

    def since(self, from_ms: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the alerts from a time on, None for all, as rows of `alerts`."""


@dataclass(frozen=True)
class AlertPolicy(Generic[Setting]):
    """One policy field of a rule; a policy overrides the methods that it needs."""

    written: Setting  # the value of the field
    field: ClassVar[str]  # its name
    held_by: ClassVar[str | None] = None  # its name in results as the reason; None if it never holds back
    depends_on_alerts: ClassVar[bool] = False  # whether an alert may depend on those of the rule and key before it

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether an alert is held back."""
        return False

    def remember(self, state: RuleState, time_ms: int) -> RuleState:
        """Return the state after an alert has come out."""
        return state

    def quiet_until_ms(self, state: RuleState) -> int | None:
        """Return until when the policy needs its state, so that the key must be kept; None if it does not."""
        return None

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Explain why an alert is held back; empty if it is not."""
        yield from ()

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Describe the policy in English, as sentences without capital and full stop."""
        yield from ()

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return the texts that people wrote in the field, each with its location in it."""
        yield from ()

    def faults(self, group_by: Sequence[str], schema: EventSchema) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return what does not fit the rule and the event schema, each with its location in the field."""
        yield from ()


def quiet_until_ms(policies: Iterable[AlertPolicy[Any]], state: RuleState) -> int | None:
    """Return until when any of the policies needs its state, in ms; None if none does."""
    ends_ms = (policy.quiet_until_ms(state) for policy in policies)
    return max((end_ms for end_ms in ends_ms if end_ms is not None), default=None)


def held_by(policies: Iterable[AlertPolicy[Any]], fired: FiredAt, state: RuleState) -> str | None:
    """Return the name of the first policy that holds an alert back; None if none does."""
    return next((policy.held_by for policy in policies if policy.holds_back(fired, state)), None)


def key_texts(key: Mapping[str, str | int | bool]) -> KeyTexts:
    """Return the values of a key as text, also those written as numbers, as in YAML."""
    return tuple(value_text(key[field]) for field in sorted(key))


MOST_SNOOZES = 1000
MOST_SNOOZES_TOLD = 3  # Up to so many snoozes are listed; others are only counted
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


class Snooze(Checked):
    """A time in which alerts of a rule, or of one of its keys, are held back.

    Attributes:
        key: the values of the rule's grouping fields; None for all keys.
        start: from which event time on; None: from any.
        until: the first event time at which it is over.
        reason: why.
        author: who asked for it.
    """

    model_config = ConfigDict(populate_by_name=True)

    key: dict[str, str | int | bool] | None = Field(default=None, min_length=1)
    start: Moment | None = Field(default=None, alias="from")
    until: Moment
    reason: str = Field(min_length=1, max_length=2000)
    author: str = Field(default="", max_length=2000)


class Snoozes(AlertPolicy[tuple[Snooze, ...]]):
    """Holds back alerts during snoozes."""

    field = "snoozes"
    held_by = "snooze"

    @cached_property
    def _times_ms(self) -> dict[KeyTexts | None, list[tuple[int | None, int, int]]]:
        """By key (None for all keys), the start (None if open), the end, and the index of each snooze."""
        times_ms: dict[KeyTexts | None, list[tuple[int | None, int, int]]] = {}
        for number, snooze in enumerate(self.written):
            start_ms = None if snooze.start is None else moment_ms(snooze.start)
            key = None if snooze.key is None else key_texts(snooze.key)
            times_ms.setdefault(key, []).append((start_ms, moment_ms(snooze.until), number))
        return times_ms

    def _in_force(self, fired: FiredAt) -> Iterator[int]:
        for start_ms, end_ms, number in (*self._times_ms.get(None, ()), *self._times_ms.get(fired.key(), ())):
            if (start_ms is None or start_ms <= fired.time_ms) and fired.time_ms < end_ms:
                yield number

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether a snooze is in force."""
        return next(self._in_force(fired), None) is not None

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Name the author and the reason of each snooze in force."""
        for number in sorted(self._in_force(fired)):
            snooze = self.written[number]
            by = f", by {snooze.author}" if snooze.author else ""
            until = exact_time_text(moment_ms(snooze.until))
            yield f"snoozed for {_keys(snooze)} until {until}{by}: {snooze.reason}"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Name the key and the end of the first few snoozes."""
        for snooze in self.written[:MOST_SNOOZES_TOLD]:
            start = f"from {brief_time_text(moment_ms(snooze.start))} " if snooze.start is not None else ""
            until = brief_time_text(moment_ms(snooze.until))
            yield one_line(f"snoozed for {_keys(snooze)} {start}until {until} ({snooze.reason})")
        more = len(self.written) - MOST_SNOOZES_TOLD
        if more > 0:
            yield f"{more:,} more {'snooze' if more == 1 else 'snoozes'}"

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return the reasons and authors."""
        for index, snooze in enumerate(self.written):
            yield (str(index), "reason"), snooze.reason
            yield (str(index), "author"), snooze.author

    def faults(self, group_by: Sequence[str], schema: EventSchema) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return why values cannot be keys of the rule."""
        for index, snooze in enumerate(self.written):
            fault = None if snooze.key is None else key_fault(snooze.key, group_by, schema)
            if fault is not None:
                yield (str(index), "key"), fault


def _keys(snooze: Snooze) -> str:
    return ", ".join(f"{field} {value}" for field, value in (snooze.key or {}).items()) or "all keys"


def key_fault(key: Mapping[str, str | int | bool], group_by: Sequence[str], schema: EventSchema) -> str | None:
    """Return why values cannot be a key of a rule, if so."""
    if set(key) != set(group_by):
        wanted = ", ".join(group_by) or "no field, so leave the key out"
        return f"names {short_line(', '.join(key))}, and the rule groups by {wanted}; name exactly these"
    for field, value in key.items():
        kind = schema.attributes.get(field)
        if kind is not None and not _is_of_kind(value, kind):
            return f"{field}: {short_line(repr(value))} is not {_KINDS[kind]}; write {_EXAMPLES[kind]}"
    return None


_KINDS: dict[AttributeType, str] = {"string": "text", "long": "a whole number of 64 bits", "boolean": "a boolean"}
_EXAMPLES: dict[AttributeType, str] = {"string": '"p-17"', "long": "17", "boolean": "true or false"}


def _is_of_kind(value: str | int | bool, kind: AttributeType) -> bool:
    """Return whether a value has a kind; in YAML numbers and booleans are text."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    is_whole = not isinstance(value, bool) and _WHOLE.fullmatch(str(value)) is not None
    return is_whole and -(2**63) <= int(value) < 2**63


class ResetOnAlert(AlertPolicy[bool]):
    """Lets a rule count only events that are later than its last alert."""

    field = "reset_on_alert"
    depends_on_alerts = True

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Describe the effect of an alert."""
        yield "counts from the start again after an alert"


class RequireWarm(AlertPolicy[bool]):
    """Holds back alerts whose windows may be incomplete."""

    field = "require_warm"
    held_by = "warm"

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether a window may be incomplete."""
        return not fired.is_warm

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Report that a window was not complete."""
        if not fired.is_warm:
            yield "require_warm: a window of it was not complete"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say what alerts wait for."""
        yield "no alert before its windows are complete"


class Cooldown(AlertPolicy[int]):
    """Holds back alerts until a given number of ms after the latest alert of the key, by event time."""

    field = "cooldown"
    held_by = "cooldown"
    depends_on_alerts = True

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether an alert came out shortly before, or at a later event time."""
        return state.alert_ms is not None and fired.time_ms < state.alert_ms + self.written

    def remember(self, state: RuleState, time_ms: int) -> RuleState:
        """Remember the greatest event time."""
        return state._replace(alert_ms=time_ms if state.alert_ms is None else max(state.alert_ms, time_ms))

    def quiet_until_ms(self, state: RuleState) -> int | None:
        """Return when the cooldown is over; None if none has begun."""
        return None if state.alert_ms is None else state.alert_ms + self.written

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Name the alert that began the cooldown."""
        alerts = earlier.since(fired.time_ms - self.written + 1)
        if alerts:
            latest = max(alerts, key=lambda alert: alert["event_time"])
            ends = exact_time_text(latest["event_time"] + self.written)
            alert = f"alert {latest['alert_id']} at {exact_time_text(latest['event_time'])}{earlier.origin}"
            yield f"cooldown of {format_duration(self.written)} until {ends}, because of {alert}"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Describe how many alerts may come in which time."""
        per = f" per {' and '.join(group_by)}" if group_by else ""
        yield f"at most one alert{per} in {format_duration(self.written)}"


POLICIES: tuple[type[AlertPolicy[Any]], ...] = (RequireWarm, Snoozes, Cooldown, ResetOnAlert)
"""In the order in which they decide: the first that holds an alert back is reported."""
HELD_BY = tuple(policy.held_by for policy in POLICIES if policy.held_by is not None)
"""Possible reasons for a held-back alert, by their names in results."""

"""A policy: one field of a rule that holds alerts back, or makes the next ones depend on those before."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from buckets.events.schema import EventSchema
from buckets.rules.policies.rule_state import RuleState

KeyTexts = tuple[str, ...]
"""The values of a key's fields as text, in the order of the names of the fields."""
Setting = TypeVar("Setting")
"""What the field of a rule says."""


class FiredAt(NamedTuple):
    """An event at which a rule fired.

    Attributes:
        time_ms: when it happened.
        is_warm: whether no window of the rule can lack something.
        key: gives its key.
    """

    time_ms: int
    is_warm: bool
    key: Callable[[], KeyTexts]


class EarlierAlerts(Protocol):
    """The alerts of a rule and key that came out before an event, as they are recorded."""

    @property
    def origin(self) -> str:
        """What is to be said of where they are from, after the name of one; empty where they are recorded."""

    def since(self, from_ms: int | None) -> Sequence[Mapping[str, Any]]:
        """Return those from a time on, None for all, as rows of `alerts`."""


@dataclass(frozen=True)
class AlertPolicy(Generic[Setting]):
    """What a rule says in one field; a policy overrides what it needs.

    Attributes:
        written: the value of the field.
        field: its name.
        held_by: what results name where this held an alert back; None where it never does.
        depends_on_alerts: whether an alert may depend on those of the rule and key before it.
    """

    written: Setting
    field: ClassVar[str]
    held_by: ClassVar[str | None] = None
    depends_on_alerts: ClassVar[bool] = False

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Decide whether an alert is held back."""
        return False

    def remember(self, state: RuleState, time_ms: int) -> RuleState:
        """Return what is remembered once an alert has come out."""
        return state

    def quiet_until_ms(self, state: RuleState) -> int | None:
        """Return until when the policy needs what is remembered, which keeps the key; None for not at all."""
        return None

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Say what holds an alert back; nothing where this does not."""
        yield from ()

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say in English what the policy asks for, in sentences without capital and full stop."""
        yield from ()

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return the texts that people have written into the field, each with its place in it."""
        yield from ()

    def faults(self, group_by: Sequence[str], schema: EventSchema) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return what does not fit the rule and the event schema, each with its place in the field."""
        yield from ()


def quiet_until_ms(policies: Iterable[AlertPolicy[Any]], state: RuleState) -> int | None:
    """Return until when the last of some policies needs what is remembered, in ms; None where none does."""
    last_ms = None
    for policy in policies:
        end_ms = policy.quiet_until_ms(state)
        if end_ms is not None and (last_ms is None or end_ms > last_ms):
            last_ms = end_ms
    return last_ms


def held_by(policies: Iterable[AlertPolicy[Any]], fired: FiredAt, state: RuleState) -> str | None:
    """Return what holds an alert back: the first policy that does; None where none does."""
    for policy in policies:
        if policy.holds_back(fired, state):
            return policy.held_by
    return None


def key_texts(key: Mapping[str, str | int | bool]) -> KeyTexts:
    """Return the values of a key as text: numbers may have been written so, as in YAML."""
    return tuple(_value_text(key[field]) for field in sorted(key))


def _value_text(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)

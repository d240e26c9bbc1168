"""What decides whether an alert of a rule comes out: its policy as plain integers, laid out once for all batches."""

from collections.abc import Mapping
from dataclasses import dataclass

from buckets.moment import moment_ms
from buckets.rules.policy import WHOLE_SHARE
from buckets.rules.rule import Rule

KeyTexts = tuple[str, ...]
"""The values of a key's fields as text, in the order of the names of the fields."""
Span = tuple[int | None, int]
"""From when, None for ever since, until when in ms; the first moment is in it, and the last is not."""


@dataclass(frozen=True)
class RulePolicy:
    """The policy of a rule.

    Attributes:
        needs_warm: whether alerts are held back whose windows may lack something.
        cooldown_ms: how long after an alert of a key the next ones are held back; None: not at all.
        share: of the keys, in hundredths of a per cent, whose alerts come to `alerts`.
        snoozed: in which times alerts are held back, of all keys.
        snoozed_keys: likewise, by key.
    """

    needs_warm: bool
    cooldown_ms: int | None
    share: int
    snoozed: tuple[Span, ...]
    snoozed_keys: Mapping[KeyTexts, tuple[Span, ...]]

    @property
    def holds_back(self) -> bool:
        """Whether it can hold back alerts, which are counted by key."""
        return bool(self.needs_warm or self.cooldown_ms is not None or self.snoozed or self.snoozed_keys)

    def is_snoozed(self, key: KeyTexts, time_ms: int) -> bool:
        """Whether alerts of a key are snoozed at an event time."""
        spans = (*self.snoozed, *self.snoozed_keys.get(key, ()))
        return any((start_ms is None or start_ms <= time_ms) and time_ms < end_ms for start_ms, end_ms in spans)


def policy_of(rule: Rule) -> RulePolicy | None:
    """The policy of a rule; None where every alert of it comes out."""
    everywhere: list[Span] = []
    by_key: dict[KeyTexts, list[Span]] = {}
    for snooze in rule.snoozes:
        spans = everywhere if snooze.key is None else by_key.setdefault(key_texts(snooze.key), [])
        spans.append((None if snooze.start is None else moment_ms(snooze.start), moment_ms(snooze.until)))
    keys = {key: tuple(spans) for key, spans in by_key.items()}
    found = RulePolicy(rule.require_warm, rule.cooldown, rule.rollout, tuple(everywhere), keys)
    return found if found.holds_back or found.share < WHOLE_SHARE else None


def key_texts(key: Mapping[str, str | int | bool]) -> KeyTexts:
    """The values of a key as text: numbers may have been written so, as in YAML."""
    return tuple(value_text(key[field]) for field in sorted(key))


def value_text(value: str | int | bool) -> str:
    """A value as text."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)

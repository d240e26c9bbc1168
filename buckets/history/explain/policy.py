"""Says what the policy of a rule made of an event at which it fired."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.history.explain.explanation import Reason
from buckets.history.explain.history_lookup import Past
from buckets.moment import TimeRange
from buckets.outputs.columns import HELD_ALERTS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection
from buckets.rules.policies.policy import FiredAt, key_texts
from buckets.rules.policy import WHOLE_SHARE, share_text
from buckets.rules.rule import Rule


@dataclass(frozen=True)
class FiredThen:
    """An event at which a rule fired.

    Attributes:
        rule: the rule.
        key: its key, by field.
        time_ms: when it happened.
        number: which arrival it was.
        warm: whether its windows were complete.
        since: the first batch of which something is remembered: what its group keeps may have begun again.
        filled: where the history of its group was filled in, the alerts that it has with that; None elsewhere.
    """

    rule: Rule
    key: Mapping[str, Any]
    time_ms: int
    number: int
    warm: bool
    since: int
    filled: Sequence[Row] | None = None


@dataclass(frozen=True)
class _EarlierAlerts:
    """The alerts of a rule and key that came out before an event; see `rules.policies`."""

    past: Past
    fired: FiredThen

    @property
    def origin(self) -> str:
        """Where they are from, if they were never put out."""
        return "" if self.fired.filled is None else ", as of its filled-in history"

    def since(self, from_ms: int | None) -> list[Row]:
        """Return those from a time on, None for all; not those that were held back."""
        return [row for row in fired_before(self.past, self.fired, from_ms) if row["output"] != HELD_ALERTS]


def holding_reasons(past: Past, fired: FiredThen) -> Iterator[Reason]:
    """Say what holds an alert back, in the order in which policies decide: the first counts."""
    event = FiredAt(fired.time_ms, fired.warm, lambda: key_texts(fired.key))
    for policy in fired.rule.policies:
        if policy.held_by is not None:
            for sentence in policy.explain(event, _EarlierAlerts(past, fired)):
                yield Reason(policy.held_by, sentence)


def not_for_alerts(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """Say why an alert goes to `shadow_alerts`."""
    if rule.state == "SHADOW":
        yield Reason("shadow", "the rule is on trial (SHADOW): its alerts go to shadow_alerts")
    elif rule.rollout < WHOLE_SHARE and not _is_in_share(rule, key):
        share = share_text(rule.rollout)
        yield Reason("rollout", f"the key is outside the {share} of keys that the rule alerts for")


def in_share(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """Say that a key is inside the share of a rule, where it has one."""
    if rule.state == "ACTIVE" and rule.rollout < WHOLE_SHARE and _is_in_share(rule, key):
        yield Reason("rollout", f"the key is inside the {share_text(rule.rollout)} of keys that the rule alerts for")


def _is_in_share(rule: Rule, key: Mapping[str, Any]) -> bool:
    from buckets.engine.policies.policies import is_in_share

    text = json.dumps({name: key[name] for name in sorted(key)}, ensure_ascii=False)
    return is_in_share(rule, text)


def fired_before(past: Past, fired: FiredThen, from_ms: int | None) -> list[Row]:
    """Return the events from a time on at which a rule had fired for a key before, each with the `output` it is in."""
    rows = _recorded(past, fired, from_ms) if fired.filled is None else fired.filled
    schema = past.schema
    came = past.numbers_of(schema, [(row["event_id"], row["event_time"]) for row in rows])
    before = []
    for row in rows:
        arrivals = came.get((row["event_id"], row["event_time"]))
        if arrivals is None:
            continue
        came_at = arrivals.row_of(row["source"], row["position"])
        is_kept = arrivals.batches[came_at] >= fired.since and TimeRange(from_ms).has(row["event_time"])
        if arrivals.numbers[came_at] < fired.number and is_kept:
            before.append(row)
    return before


def _recorded(past: Past, fired: FiredThen, from_ms: int | None) -> list[Row]:
    texts = set(_spellings(past, fired))
    return [
        row | {"output": output}
        for output in ALERT_OUTPUTS
        for row in past.results(output, Selection({"rule_id": [fired.rule.rule_id], "key": texts}, TimeRange(from_ms)))
    ]


def _spellings(past: Past, fired: FiredThen) -> Iterator[str]:
    """Return the key as text, its fields in the order of the rule or of its group, by the names of each epoch."""
    names = past.archive.names
    for epoch in range(names.epoch + 1):
        key = {names.name_in(epoch, field) or field: value for field, value in fired.key.items()}
        by_rule = [names.name_in(epoch, field) or field for field in fired.rule.group_by]
        for order in (by_rule, sorted(key)):
            yield json.dumps({name: key[name] for name in order}, ensure_ascii=False)

"""What the policy of a rule said of an event at which it fired."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.duration import format_duration
from buckets.history.explain.explanation import Reason
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.results import OF_ALERTS, Row
from buckets.moment import exact_time_text, moment_ms
from buckets.outputs.columns import HELD_ALERTS
from buckets.rules.policy import WHOLE_SHARE, Snooze, share_text
from buckets.rules.rule import Rule
from buckets.rules.rule_policy import key_texts


@dataclass(frozen=True)
class FiredAt:
    """An event at which a rule fired.

    Attributes:
        rule: the rule.
        key: its key, by field.
        key_text: the key as results have it.
        time_ms: when it happened.
        number: which arrival it was.
        warm: whether its windows were complete.
        since: the first batch of which something is remembered: what its group keeps may have begun again.
        filled: where the history of its group was filled in, the alerts that it has with that; None elsewhere.
    """

    rule: Rule
    key: Mapping[str, Any]
    key_text: str
    time_ms: int
    number: int
    warm: bool
    since: int
    filled: Sequence[Row] | None = None


def held_by(past: Past, fired: FiredAt) -> Iterator[Reason]:
    """What holds its alert back, in the order in which it is looked at: the first decides."""
    rule, time_ms = fired.rule, fired.time_ms
    if rule.require_warm and not fired.warm:
        yield Reason("warm", "require_warm: a window of it was not complete")
    for snooze in rule.snoozes:
        if _is_snoozed(snooze, fired):
            by = f", by {snooze.author}" if snooze.author else ""
            until = exact_time_text(moment_ms(snooze.until))
            yield Reason("snooze", f"snoozed for {_snoozed(snooze)} until {until}{by}: {snooze.reason}")
    if rule.cooldown is not None:
        last = latest_alert(past, fired, time_ms - rule.cooldown + 1)
        if last is not None:
            ends = exact_time_text(last["event_time"] + rule.cooldown)
            alert = f"alert {last['alert_id']} at {exact_time_text(last['event_time'])}"
            because = f"because of {alert}" + (", as of its filled-in history" if fired.filled is not None else "")
            yield Reason("cooldown", f"cooldown of {format_duration(rule.cooldown)} until {ends}, {because}")


def not_for_alerts(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """Why an alert goes to `shadow_alerts`."""
    if rule.state == "SHADOW":
        yield Reason("shadow", "the rule is on trial (SHADOW): its alerts go to shadow_alerts")
    elif rule.rollout < WHOLE_SHARE and not _is_in_share(rule, key):
        share = share_text(rule.rollout)
        yield Reason("rollout", f"the key is outside the {share} of keys that the rule alerts for")


def in_share(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """That a key is inside the share of a rule, where it has one."""
    if rule.state == "ACTIVE" and rule.rollout < WHOLE_SHARE and _is_in_share(rule, key):
        yield Reason("rollout", f"the key is inside the {share_text(rule.rollout)} of keys that the rule alerts for")


def _is_in_share(rule: Rule, key: Mapping[str, Any]) -> bool:
    from buckets.engine.policies.policies import is_in_share

    text = json.dumps({name: key[name] for name in sorted(key)}, ensure_ascii=False)
    return is_in_share(rule, text)


def _is_snoozed(snooze: Snooze, fired: FiredAt) -> bool:
    if snooze.key is not None and key_texts(snooze.key) != key_texts(fired.key):
        return False
    begins = snooze.start is None or moment_ms(snooze.start) <= fired.time_ms
    return begins and fired.time_ms < moment_ms(snooze.until)


def _snoozed(snooze: Snooze) -> str:
    return "all keys" if snooze.key is None else ", ".join(f"{name} {value}" for name, value in snooze.key.items())


def latest_alert(past: Past, fired: FiredAt, from_ms: int) -> Row | None:
    """The latest alert of the rule and key that came before, from a time on; not one that was held back."""
    found = [row for row in fired_before(past, fired, from_ms) if row["output"] != HELD_ALERTS]
    return max(found, key=lambda row: row["event_time"], default=None)


def fired_before(past: Past, fired: FiredAt, from_ms: int) -> list[Row]:
    """The events from a time on at which a rule had fired for a key before, with the `output` that each is in."""
    rows = _recorded(past, fired, from_ms) if fired.filled is None else fired.filled
    schema = past.schema
    came = past.numbers_of(schema, [(row["event_id"], row["event_time"]) for row in rows])
    before = []
    for row in rows:
        arrivals = came.get((row["event_id"], row["event_time"]))
        if arrivals is None:
            continue
        origins = [each[::2] for each in arrivals.origins]
        mine = (row["source"], row["position"])
        came_at = origins.index(mine) if mine in origins else 0
        is_kept = arrivals.batches[came_at] >= fired.since and row["event_time"] >= from_ms
        if arrivals.numbers[came_at] < fired.number and is_kept:
            before.append(row)
    return before


def _recorded(past: Past, fired: FiredAt, from_ms: int) -> list[Row]:
    texts = {fired.key_text, *_spellings(past, fired)}
    return [
        row | {"output": output}
        for output in OF_ALERTS
        for row in past.results.alerts_of(output, [fired.rule.rule_id], texts, from_ms)
    ]


def _spellings(past: Past, fired: FiredAt) -> Iterator[str]:
    """The key as text, with its fields in the order of the rule or of its group, and by the names of each epoch."""
    names = past.archive.names
    for epoch in range(names.epoch + 1):
        key = {names.name_in(epoch, field) or field: value for field, value in fired.key.items()}
        by_rule = [names.name_in(epoch, field) or field for field in fired.rule.group_by]
        for order in (by_rule, sorted(key)):
            yield json.dumps({name: key[name] for name in order}, ensure_ascii=False)

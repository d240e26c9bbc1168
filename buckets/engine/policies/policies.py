"""Alert policies: what becomes of the events of a batch at which rules fired.

Key by key, in the order of arrival, the first of these that applies to a rule and an event decides:

1. `require_warm`, and a window may lack something: held back.
2. A snooze of the rule or of the key holds the time of the event: held back.
3. The event is earlier than the greatest time of an alert of this rule and key and the rule's `cooldown`: held back.
4. Otherwise it is an alert. Of a rule on trial, and of a key outside the share of `rollout`, it goes to
   `shadow_alerts`.

Time is event time, and what is remembered lies in the state: so a replay decides the same, and no cut into batches
makes a difference. `effective` comes before all this: at other times a rule is not evaluated.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.policies.policy_state import PolicyState
from buckets.engine.storage.key import decode_key, key_json
from buckets.engine.storage.shard_store import Entries
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import Scored
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS, VARIANT_ALERTS, VARIANT_HELD_ALERTS
from buckets.rules.policy import ALWAYS_MS, WHOLE_SHARE
from buckets.rules.rule import Rule
from buckets.rules.rule_policy import KeyTexts, RulePolicy, key_texts

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
HELD_BY = (None, "warm", "snooze", "cooldown")
"""What can hold an alert back, by its code; 0 is for those that come out."""
_WARM, _SNOOZE, _COOLDOWN = range(1, len(HELD_BY))


@dataclass(frozen=True)
class Fired:
    """Events at which rules fired, each key's in the order of arrival: arrays of one length.

    Attributes:
        rules: the rules.
        rule: the index of each row's rule.
        events: int64, indices of events.
        warm: bool, whether no window of the rule can lack something.
    """

    rules: Sequence[Rule]
    rule: npt.NDArray[np.int32] | Int64s
    events: Int64s
    warm: Flags


@dataclass(frozen=True)
class Decided:
    """What became of events at which rules fired: arrays of one length.

    Attributes:
        fired: the events.
        is_active: bool, whether it is for `alerts`, held back or not; otherwise for `shadow_alerts`.
        held_by: uint8, what holds it back, by `HELD_BY`.
        held_back: int64, how many alerts of the rule and key have been held back since the last one, before this.
    """

    fired: Fired
    is_active: Flags
    held_by: npt.NDArray[np.uint8]
    held_back: Int64s

    def rows(self) -> dict[str, Int64s]:
        """The rows that go to each output, without outputs that get none."""
        held = self.held_by > 0
        chosen = {ALERTS: ~held & self.is_active, SHADOW_ALERTS: ~held & ~self.is_active, HELD_ALERTS: held}
        if any(rule.is_variant for rule in self.fired.rules):
            tried = np.array([rule.is_variant for rule in self.fired.rules], np.bool_)[self.fired.rule]
            chosen = {output: mine & ~tried for output, mine in chosen.items()}
            chosen |= {VARIANT_ALERTS: tried & ~held, VARIANT_HELD_ALERTS: tried & held}
        return {output: np.flatnonzero(mine) for output, mine in chosen.items() if mine.any()}

    def columns(self, rows: Int64s) -> dict[str, pa.Array]:
        """What policies add to the columns of some rows."""
        rules, index = self.fired.rules, pa.array(self.fired.rule[rows].astype(np.int64))
        states = pa.array(["SHADOW", "ACTIVE"]).take(pa.array(self.is_active[rows].astype(np.int64)))
        return {
            "severity": pa.array([rule.severity for rule in rules], pa.string()).take(index),
            "tags": pa.array([list(rule.tags) for rule in rules], pa.list_(pa.string())).take(index),
            "score": pa.array([rule.score for rule in rules], pa.int64()).take(index),
            "held_back": pa.array(self.held_back[rows]),
            "held_by": pa.array(HELD_BY, pa.string()).take(pa.array(self.held_by[rows].astype(np.int64))),
            "state": states,
        }


class AlertPolicies:
    """The policies of a group's rules during one batch."""

    def __init__(self, table: KeyedTable, entries: Entries, identity: str) -> None:
        """Nothing is read yet.

        Args:
            table: the events of the group.
            entries: the map of the state that keeps what policies remember.
            identity: of the group there.
        """
        self.table, self._policies = table, table.group.policies
        self.state = PolicyState(entries, table.group, identity, table.keys)
        self._keys: dict[int, KeyTexts] = {}

    def decide(self, fired: Fired, clocks_ms: Int64s) -> Decided:
        """Decide what becomes of events at which rules fired; those of a rule and key come in one call.

        Args:
            fired: the events.
            clocks_ms: int64, to which time the clock of its key has come with each event of the group.
        """
        size = len(fired.events)
        is_active = np.array([rule.state == "ACTIVE" for rule in fired.rules], np.bool_)[fired.rule]
        decided = Decided(fired, is_active, np.zeros(size, np.uint8), np.zeros(size, np.int64))
        if not self._policies:
            return decided
        codes = self.table.codes[fired.events]
        asked = [
            (rule, self._policies[rule.rule_id], np.flatnonzero(fired.rule == number))
            for number, rule in enumerate(fired.rules)
            if rule.rule_id in self._policies
        ]
        counting = [codes[rows] for _, policy, rows in asked if policy.holds_back]
        if counting:
            self.state.read(np.unique(np.concatenate(counting)).tolist())
        for rule, policy, rows in asked:
            if policy.share < WHOLE_SHARE:
                inside = {code: self._is_in_share(rule, code) for code in np.unique(codes[rows]).tolist()}
                is_active[rows] &= np.array([inside[code] for code in codes[rows].tolist()], np.bool_)
            if policy.holds_back:
                self._hold_back(rule.rule_id, policy, rows, clocks_ms[fired.events[rows]], decided)
        return decided

    def _hold_back(self, rule_id: str, policy: RulePolicy, rows: Int64s, clocks_ms: Int64s, decided: Decided) -> None:
        """Decide about the rows of one rule."""
        fired, state, cooldown_ms = decided.fired, self.state, policy.cooldown_ms
        codes, window_ms = self.table.codes[fired.events[rows]], self.table.group.longest_window_ms
        times_ms, warm = self.table.times_ms(fired.events[rows]).tolist(), fired.warm[rows].tolist()
        snoozes = bool(policy.snoozed or policy.snoozed_keys)
        each_row = zip(rows.tolist(), codes.tolist(), times_ms, clocks_ms.tolist(), warm, strict=True)
        for row, code, time_ms, clock_ms, is_warm in each_row:
            now, held_by = state.of(code, rule_id).at(clock_ms, cooldown_ms, window_ms), 0
            if policy.needs_warm and not is_warm:
                held_by = _WARM
            elif snoozes and policy.is_snoozed(self._key(code), time_ms):
                held_by = _SNOOZE
            elif cooldown_ms is not None and now.alert_ms is not None and time_ms < now.alert_ms + cooldown_ms:
                held_by = _COOLDOWN
            decided.held_back[row] = now.held_back
            if held_by:
                decided.held_by[row] = held_by
                held_ms = time_ms if now.held_ms is None else max(now.held_ms, time_ms)
                after = now._replace(held_back=now.held_back + 1, held_ms=held_ms)
            elif cooldown_ms is None:
                after = now._replace(held_back=0, held_ms=None)
            else:
                last_ms = time_ms if now.alert_ms is None else max(now.alert_ms, time_ms)
                after = now._replace(alert_ms=last_ms, held_back=0, held_ms=None)
            state.put(code, rule_id, after, time_ms)

    def _key(self, code: int) -> KeyTexts:
        if code not in self._keys:
            self._keys[code] = key_texts(decode_key(self.table.group, self.table.keys[code], self.table.schema))
        return self._keys[code]

    def _is_in_share(self, rule: Rule, code: int) -> bool:
        """Whether a key is inside the share of a rule."""
        table = self.table
        key = key_json(table.group, table.keys[code], table.schema, sorted(table.group.fields))
        return is_in_share(rule, key)


def is_in_share(rule: Rule, key: str) -> bool:
    """Whether the alerts of a key come to `alerts` by the rule's `rollout`.

    It depends on the rule's id, the key and the share alone; a key that is inside stays inside when the share grows.

    Args:
        rule: the rule.
        key: the key as JSON text, its fields sorted by name.
    """
    text = json.dumps([rule.rule_id, key], ensure_ascii=False)
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return number % WHOLE_SHARE < rule.rollout


def in_effect(rules: Sequence[Rule], scored: Scored, times_ms: Int64s) -> Scored:
    """What came out for events, without the rows of rules that are not in effect at the time of the event.

    Args:
        rules: the rules that rows name by their index.
        scored: what came out.
        times_ms: int64 `(events,)`.
    """
    if all(rule.effective is None for rule in rules):
        return scored
    start_ms, end_ms = np.array(
        [ALWAYS_MS if rule.effective is None else rule.effective.span_ms() for rule in rules], np.int64
    ).T
    return replace(
        scored,
        rows=_chosen(scored.rows, start_ms, end_ms, times_ms),
        beyond=_chosen(scored.beyond, start_ms, end_ms, times_ms),
    )


def _chosen(rows: Rows, start_ms: Int64s, end_ms: Int64s, times_ms: Int64s) -> Rows:
    """The rows of rules that are in effect, and those of parts, which are numbered after the rules."""
    rule, times_ms = np.minimum(rows.rule, len(start_ms) - 1), times_ms[rows.event]
    kept = (rows.rule >= len(start_ms)) | ((start_ms[rule] <= times_ms) & (times_ms < end_ms[rule]))
    columns: list[npt.NDArray[Any]] = [column[kept] for column in rows]
    return Rows(*columns)

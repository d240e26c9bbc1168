"""Alert policies in a shard: their state, one entry for a group and key, and the alerts that they hold back.

An entry is JSON, `[version, generation, latest_ms, {rule_id: [alert_ms, held_back, reset_ms, held_ms]}]`. State is kept
by rule and not by rule version: a new version continues where the old one stopped. An entry of another generation of
its group is ignored, as its timelines are. The next change drops rules that the group no longer has; eviction of the
key removes the entry.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Flags, Int32s, Int64s
from buckets.engine.batch.fan_out import KeyedTable
from buckets.engine.storage.key import decode_key, key_writer
from buckets.engine.storage.shard_store import Entries, head_key, head_keys
from buckets.errors import BucketsError
from buckets.json_text import write_json
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import Scored, chosen_rows
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS, VARIANT_ALERTS, VARIANT_HELD_ALERTS
from buckets.rules.group import Group
from buckets.rules.policies import (
    HELD_BY,
    NOTHING,
    AlertPolicy,
    FiredAt,
    KeyTexts,
    RuleState,
    held_by,
    key_texts,
    quiet_until_ms,
)
from buckets.rules.rule import ALWAYS_MS, WHOLE_SHARE, Rule
from buckets.timeline.head import FROM_THE_BEGINNING, NO_CLOCK

ENTRY_VERSION = 1


class PolicyEntry(NamedTuple):
    """The policy state of a key."""

    generation: int  # that of its group
    latest_ms: int  # the time of the latest event that has changed it, in ms
    rules: dict[str, RuleState]  # by rule_id

    def needed_until_ms(self, group: Group) -> int:
        """Return until when the group's policies need the entry, in ms; NO_CLOCK if none does."""
        ends_ms = (quiet_until_ms(group.policies.get(rule_id, ()), state) for rule_id, state in self.rules.items())
        return max((end_ms for end_ms in ends_ms if end_ms is not None), default=NO_CLOCK)

    def to_bytes(self) -> bytes:
        """Encode the entry for the state."""
        written = [ENTRY_VERSION, self.generation, self.latest_ms, dict(sorted(self.rules.items()))]
        return json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()


def read_entry(stored: bytes, group: Group) -> PolicyEntry | None:
    """Decode the entry of a key of a group; None for empty bytes or another generation.

    Raises:
        BucketsError: a later release wrote it.
    """
    if not stored:
        return None
    version, *rest = json.loads(stored)
    if version != ENTRY_VERSION:
        message = (
            f"what policies remember of group {group.name!r} has version {version}, and this release reads "
            f"{ENTRY_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    generation, latest_ms, rules = rest
    if generation != group.generation:
        return None
    return PolicyEntry(generation, latest_ms, {rule_id: RuleState(*state) for rule_id, state in rules.items()})


def needed_until_ms(group: Group, stored: Sequence[bytes]) -> Int64s:
    """Return until when policies need each stored entry of a group, in ms; NO_CLOCK if they do not."""
    entries = (read_entry(entry, group) for entry in stored)
    return np.array([NO_CLOCK if entry is None else entry.needed_until_ms(group) for entry in entries], np.int64)


class PolicyState:
    """The policy entries of some keys of a group during one batch."""

    def __init__(self, entries: Entries, group: Group, identity: str, keys: pa.Array) -> None:
        """Begin without reading anything; methods name keys by their index, and entries are stored under `identity`."""
        self._entries, self._group, self._identity, self._keys = entries, group, identity, keys
        self._read: dict[int, PolicyEntry | None] = {}
        self._stored: set[int] = set()
        self._changed: dict[int, None] = {}

    def read(self, keys: Iterable[int]) -> None:
        """Read the entries of keys that have not been read yet, in one call to the store."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._read]
        if not wanted:
            return
        stored = self._entries.get(head_keys(self._identity, self._keys.take(pa.array(wanted)).to_pylist()))
        self._read.update((key, read_entry(entry, self._group)) for key, entry in zip(wanted, stored, strict=True))
        self._stored.update(key for key, entry in zip(wanted, stored, strict=True) if entry)

    def of(self, key: int, rule_id: str) -> RuleState:
        """Return the state of a rule for a key that has been read."""
        entry = self._read[key]
        return NOTHING if entry is None else entry.rules.get(rule_id, NOTHING)

    def put(self, key: int, rule_id: str, state: RuleState, time_ms: int) -> None:
        """Replace the state of a rule for a key that has been read."""
        entry = self._read[key]
        if entry is None:
            entry = self._read[key] = PolicyEntry(self._group.generation, time_ms, {})
        if entry.rules.get(rule_id, NOTHING) == state:
            return
        entry.rules[rule_id] = state
        self._read[key] = entry._replace(latest_ms=max(entry.latest_ms, time_ms))
        self._changed[key] = None

    def write(self) -> dict[str, int]:
        """Write the changed entries.

        Returns:
            The keys that had no entry before, each with the time of the latest event that changed its entry.
        """
        if not self._changed:
            return {}
        known = {rule.rule_id for rule in self._group.rules}
        put: list[tuple[bytes, bytes]] = []
        new: dict[str, int] = {}
        for key in self._changed:
            entry = self._read[key]
            assert entry is not None
            kept = {rule_id: state for rule_id, state in entry.rules.items() if rule_id in known and state != NOTHING}
            if kept or key in self._stored:
                text = self._keys[key].as_py()
                put.append((head_key(self._identity, text), entry._replace(rules=kept).to_bytes()))
                new |= {} if key in self._stored else {text: entry.latest_ms}
        if put:
            self._entries.put(put)
        self._stored.update(self._changed)
        self._changed = {}
        return new


def read_resets(plan: GroupPlan, state: PolicyState, keys: int) -> Int64s:
    """Return from when events count since each of the plan's resetting rules last fired, int64 `(keys, rules)`, in ms.

    It is FROM_THE_BEGINNING for a rule that never fired.
    """
    from_ms = np.full((keys, len(plan.resetting)), FROM_THE_BEGINNING)
    if plan.resetting:
        state.read(range(keys))
    for column, rule in enumerate(plan.resetting):
        rule_id = plan.rules[rule].rule_id
        for key in range(keys):
            last_ms = state.of(key, rule_id).reset_ms
            if last_ms is not None:
                from_ms[key, column] = last_ms + 1
    return from_ms


def keep_resets(plan: GroupPlan, state: PolicyState, before_ms: Int64s, after_ms: Int64s) -> None:
    """Store the resets that have changed; both arrays are as in `read_resets`."""
    if not plan.resetting:
        return
    for key, column in np.argwhere(before_ms != after_ms).tolist():
        rule_id, last_ms = plan.rules[plan.resetting[column]].rule_id, int(after_ms[key, column]) - 1
        state.put(key, rule_id, state.of(key, rule_id)._replace(reset_ms=last_ms), last_ms)


_HELD_BY = (None, *HELD_BY)  # What can hold an alert back, by its code; 0 is for those that come out


@dataclass(frozen=True)
class Fired:
    """Events at which rules fired, each key's in arrival order: arrays of one length."""

    rules: Sequence[Rule]  # the rules
    rule: Int32s | Int64s  # the index of each row's rule
    events: Int64s  # int64, indices of events
    warm: Flags  # bool, whether no window of the rule can lack something


@dataclass(frozen=True)
class Decided:
    """What policies decided about events at which rules fired: arrays of one length."""

    fired: Fired  # the events
    is_active: Flags  # bool, whether it is for `alerts`, held back or not; otherwise for `shadow_alerts`
    held_by: npt.NDArray[np.uint8]  # uint8, what holds it back, an index into `_HELD_BY`
    held_back: Int64s  # int64, how many alerts of the rule and key were held back between the last one and this one

    def rows(self) -> dict[str, Int64s]:
        """Return the rows for each output that gets any."""
        held = self.held_by > 0
        chosen = {ALERTS: ~held & self.is_active, SHADOW_ALERTS: ~held & ~self.is_active, HELD_ALERTS: held}
        if any(rule.is_variant for rule in self.fired.rules):
            tried = np.array([rule.is_variant for rule in self.fired.rules], np.bool_)[self.fired.rule]
            chosen = {output: flags & ~tried for output, flags in chosen.items()}
            chosen |= {VARIANT_ALERTS: tried & ~held, VARIANT_HELD_ALERTS: tried & held}
        return {output: np.flatnonzero(flags) for output, flags in chosen.items() if flags.any()}

    def columns(self, rows: Int64s) -> dict[str, pa.Array]:
        """Return the alert columns that policies add, for some rows."""
        rules, index = self.fired.rules, pa.array(self.fired.rule[rows].astype(np.int64))
        states = pa.array(["SHADOW", "ACTIVE"]).take(pa.array(self.is_active[rows].astype(np.int64)))
        return {
            "severity": pa.array([rule.severity for rule in rules], pa.string()).take(index),
            "tags": pa.array([list(rule.tags) for rule in rules], pa.list_(pa.string())).take(index),
            "held_back": pa.array(self.held_back[rows]),
            "held_by": pa.array(_HELD_BY, pa.string()).take(pa.array(self.held_by[rows].astype(np.int64))),
            "state": states,
        }


class AlertPolicies:
    """The policies of a group's rules during one batch."""

    def __init__(self, table: KeyedTable, entries: Entries, identity: str) -> None:
        self.table, self._policies = table, table.group.policies
        self.state = PolicyState(entries, table.group, identity, table.keys)
        self._keys: dict[int, KeyTexts] = {}

    def decide(self, fired: Fired, clocks_ms: Int64s) -> Decided:
        """Decide which alerts are held back; one call has all events of a rule and key.

        `clocks_ms` gives the key's clock after each event of the group.
        """
        size = len(fired.events)
        is_active = np.array([rule.state == "ACTIVE" for rule in fired.rules], np.bool_)[fired.rule]
        decided = Decided(fired, is_active, np.zeros(size, np.uint8), np.zeros(size, np.int64))
        if not self._policies:
            return decided
        codes = self.table.codes[fired.events]
        rows_of = [
            (rule, np.flatnonzero(fired.rule == number))
            for number, rule in enumerate(fired.rules)
            if rule.rule_id in self._policies
        ]
        counting = [codes[rows] for rule, rows in rows_of if self._policies[rule.rule_id]]
        if counting:
            self.state.read(np.unique(np.concatenate(counting)).tolist())
        for rule, rows in rows_of:
            if rule.rollout < WHOLE_SHARE:
                inside = self._in_share(rule, np.unique(codes[rows]).tolist())
                is_active[rows] &= np.array([inside[code] for code in codes[rows].tolist()], np.bool_)
            policies = self._policies[rule.rule_id]
            if policies:
                self._hold_back(rule.rule_id, policies, rows, clocks_ms[fired.events[rows]], decided)
        return decided

    def _hold_back(
        self, rule_id: str, policies: Sequence[AlertPolicy[Any]], rows: Int64s, clocks_ms: Int64s, decided: Decided
    ) -> None:
        fired, window_ms = decided.fired, self.table.group.longest_window_ms
        codes, warm = self.table.codes[fired.events[rows]].tolist(), fired.warm[rows].tolist()
        times_ms = self.table.times_ms(fired.events[rows]).tolist()
        for row, code, time_ms, clock_ms, is_warm in zip(
            rows.tolist(), codes, times_ms, clocks_ms.tolist(), warm, strict=True
        ):
            stored = self.state.of(code, rule_id)
            state = stored.at(clock_ms, quiet_until_ms(policies, stored), window_ms)
            event = FiredAt(time_ms, is_warm, partial(self._key, code))
            holding = held_by(policies, event, state)
            decided.held_back[row] = state.held_back
            if holding is not None:
                decided.held_by[row] = _HELD_BY.index(holding)
                held_ms = time_ms if state.held_ms is None else max(state.held_ms, time_ms)
                state = state._replace(held_back=state.held_back + 1, held_ms=held_ms)
            else:
                state = state._replace(held_back=0, held_ms=None)
                for policy in policies:
                    state = policy.remember(state, time_ms)
            self.state.put(code, rule_id, state, time_ms)

    def _key(self, code: int) -> KeyTexts:
        if code not in self._keys:
            self._keys[code] = key_texts(decode_key(self.table.group, self.table.keys[code].as_py(), self.table.schema))
        return self._keys[code]

    def _in_share(self, rule: Rule, codes: Sequence[int]) -> dict[int, bool]:
        """Return for each key whether it is in the share of a rule."""
        table = self.table
        write = key_writer(table.group, table.schema, sorted(table.group.fields))
        return {code: is_in_share(rule, write(table.keys[code].as_py())) for code in codes}


def is_in_share(rule: Rule, key: str) -> bool:
    """Return whether the rule's `rollout` sends a key's alerts to `alerts`; the key is JSON with sorted fields.

    It depends only on the rule's id, the key and the share; a key that is inside stays inside when the share grows.
    """
    text = write_json([rule.rule_id, key])
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return number % WHOLE_SHARE < rule.rollout


def in_effect(rules: Sequence[Rule], scored: Scored, times_ms: Int64s) -> Scored:
    """Return scored events without the rows of rules that are not in effect at the event's time."""
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
    """Return the rows of rules that are in effect, and all rows of parts, which are numbered after the rules."""
    rule, times_ms = np.minimum(rows.rule, len(start_ms) - 1), times_ms[rows.event]
    kept = (rows.rule >= len(start_ms)) | ((start_ms[rule] <= times_ms) & (times_ms < end_ms[rule]))
    return chosen_rows(rows, kept)

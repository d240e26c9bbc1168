"""What the policies of rules remember of keys: one entry for a group and key, in the map `policies` of a store.

An entry is JSON, `[version, generation, latest_ms, {rule_id: [alert_ms, held_back, reset_ms, held_ms]}]`, with what
other policies remember after the four numbers, by their fields. It is by rule and not by version of a rule: a new
version goes on where the old one was. An entry of another generation of its group is ignored, as the timelines of
that
generation are. Rules that the group does not have any more go with the next change; the entry goes when its key is
evicted.

When rules with `reset_on_alert` last fired, by key.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.storage.shard_store import Entries, head_key, head_keys
from buckets.errors import BucketsError
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import NO_RESET
from buckets.rules.group import Group
from buckets.rules.policies import NOTHING, RuleState, quiet_until_ms
from buckets.timeline.head import NO_CLOCK

Int64s = npt.NDArray[np.int64]
ENTRY_VERSION = 1


class PolicyEntry(NamedTuple):
    """What is remembered of a key."""

    generation: int  # that of its group
    latest_ms: int  # the greatest time of an event that has changed it, in ms
    rules: dict[str, RuleState]  # by rule_id

    def needed_until_ms(self, group: Group) -> int:
        """Return until when policies of the group need the entry, in ms; NO_CLOCK where none does."""
        ends_ms = (quiet_until_ms(group.policies.get(rule_id, ()), state) for rule_id, state in self.rules.items())
        return max((end_ms for end_ms in ends_ms if end_ms is not None), default=NO_CLOCK)

    def to_bytes(self) -> bytes:
        """Return the entry for the state."""
        rules = {rule_id: state.to_json() for rule_id, state in sorted(self.rules.items())}
        written = [ENTRY_VERSION, self.generation, self.latest_ms, rules]
        return json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()


def read_entry(stored: bytes, group: Group) -> PolicyEntry | None:
    """Read what `to_bytes` wrote for a key of a group; None where there is nothing, or of an earlier generation.

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
    """Return until when policies need what is remembered of each key of a group, in ms; NO_CLOCK for not at all.

    Args:
        group: the group.
        stored: what is remembered of each key.
    """
    entries = (read_entry(entry, group) for entry in stored)
    return np.array([NO_CLOCK if entry is None else entry.needed_until_ms(group) for entry in entries], np.int64)


class PolicyState:
    """What policies remember of some keys of a group, during one batch."""

    def __init__(self, entries: Entries, group: Group, identity: str, keys: pa.Array) -> None:
        """Begin with nothing read.

        Args:
            entries: the map of the state that keeps the entries.
            group: the group.
            identity: under which its entries lie there.
            keys: the keys, Arrow string, which are named by their index.
        """
        self._entries, self._group, self._identity, self._keys = entries, group, identity, keys
        self._read: dict[int, PolicyEntry | None] = {}
        self._stored: set[int] = set()
        self._changed: dict[int, None] = {}

    def read(self, keys: Iterable[int]) -> None:
        """Read the entries of keys, all in one call, but for those that have been read."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._read]
        if not wanted:
            return
        stored = self._entries.get(head_keys(self._identity, self._keys.take(pa.array(wanted)).to_pylist()))
        self._read.update((key, read_entry(entry, self._group)) for key, entry in zip(wanted, stored, strict=True))
        self._stored.update(key for key, entry in zip(wanted, stored, strict=True) if entry)

    def of(self, key: int, rule_id: str) -> RuleState:
        """Return what is remembered of a rule and a key that has been read."""
        entry = self._read[key]
        return NOTHING if entry is None else entry.rules.get(rule_id, NOTHING)

    def put(self, key: int, rule_id: str, state: RuleState, time_ms: int) -> None:
        """Remember something else of a rule and a key that has been read.

        Args:
            key: the index of the key.
            rule_id: the rule.
            state: what to remember.
            time_ms: the time of the event that made the difference.
        """
        entry = self._read[key]
        if entry is None:
            entry = self._read[key] = PolicyEntry(self._group.generation, time_ms, {})
        if entry.rules.get(rule_id, NOTHING) == state:
            return
        entry.rules[rule_id] = state
        self._read[key] = entry._replace(latest_ms=max(entry.latest_ms, time_ms))
        self._changed[key] = None

    def write(self) -> dict[str, int]:
        """Write what has changed.

        Returns:
            The keys that have an entry now and had none, each with the time of the latest event that has changed it.
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
    """Return when each of the plan's resetting rules last fired, int64 `(keys, rules)`; NO_RESET for never.

    Args:
        plan: the group's plan.
        state: what policies remember; read where some rule is reset.
        keys: how many keys there are.
    """
    reset_ms = np.full((keys, len(plan.resetting)), NO_RESET, np.int64)
    if plan.resetting:
        state.read(range(keys))
    for column, rule in enumerate(plan.resetting):
        rule_id = plan.rules[rule].rule_id
        for key in range(keys):
            last_ms = state.of(key, rule_id).reset_ms
            if last_ms is not None:
                reset_ms[key, column] = last_ms
    return reset_ms


def keep_resets(plan: GroupPlan, state: PolicyState, before_ms: Int64s, after_ms: Int64s) -> None:
    """Let policies remember what has changed; both arrays are as `read_resets` gives them."""
    if not plan.resetting:
        return
    for key, column in np.argwhere(before_ms != after_ms).tolist():
        rule_id, last_ms = plan.rules[plan.resetting[column]].rule_id, int(after_ms[key, column])
        state.put(key, rule_id, state.of(key, rule_id)._replace(reset_ms=last_ms), last_ms)

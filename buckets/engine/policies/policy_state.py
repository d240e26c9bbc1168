"""What the policies of rules remember of keys: one entry for a group and key, in the map `policies` of a store.

An entry is JSON, `[version, generation, latest_ms, {rule_id: [alert_ms, held_back, reset_ms, held_ms]}]`. It is by
rule and not by version of a rule: a new version goes on where the old one was. An entry of another generation of its
group is ignored, as the timelines of that generation are. Rules that the group does not have any more go with the next
change; the entry goes when its key is evicted.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.engine.storage.shard_store import Entries, head_key, head_keys
from buckets.errors import BucketsError
from buckets.rules.rule_policy import RulePolicy
from buckets.rules.rule_set import Group
from buckets.timeline.head import NO_CLOCK

ENTRY_VERSION = 1


class RuleState(NamedTuple):
    """What is remembered of a rule and key.

    Attributes:
        alert_ms: the greatest time of an event that made an alert, in ms; None where none did, or nothing asks for it.
        held_back: how many alerts have been held back since the last one.
        reset_ms: when counting started again, in ms; None where it never did.
        held_ms: the greatest time of an event whose alert has been held back since the last one; None where none was.
    """

    alert_ms: int | None = None
    held_back: int = 0
    reset_ms: int | None = None
    held_ms: int | None = None

    def quiet_until_ms(self, cooldown_ms: int | None) -> int | None:
        """When the cooldown is over, in ms; None where none has begun."""
        return None if cooldown_ms is None or self.alert_ms is None else self.alert_ms + cooldown_ms

    def at(self, clock_ms: int, cooldown_ms: int | None, window_ms: int) -> "RuleState":
        """The state as it counts when the clock of the key has come to a time.

        What was held back is forgotten once it, and the cooldown, are older than the longest window of the group. Later
        than that the key may be evicted, sooner or later as batches come, and this must make no difference.
        """
        if self.held_ms is None:
            return self
        quiet_ms = self.quiet_until_ms(cooldown_ms)
        last_ms = self.held_ms if quiet_ms is None else max(self.held_ms, quiet_ms)
        return self._replace(held_back=0, held_ms=None) if clock_ms > last_ms + window_ms else self


NOTHING = RuleState()


class PolicyEntry(NamedTuple):
    """What is remembered of a key.

    Attributes:
        generation: that of its group.
        latest_ms: the greatest time of an event that has changed it, in ms.
        rules: by rule_id.
    """

    generation: int
    latest_ms: int
    rules: dict[str, RuleState]

    def quiet_until_ms(self, policies: Mapping[str, RulePolicy]) -> int | None:
        """When the last cooldown of the key is over, in ms; None where none of its rules has one."""
        ends_ms = []
        for rule_id, state in self.rules.items():
            end_ms = state.quiet_until_ms(policies[rule_id].cooldown_ms) if rule_id in policies else None
            if end_ms is not None:
                ends_ms.append(end_ms)
        return max(ends_ms, default=None)

    def to_bytes(self) -> bytes:
        """The entry, for the state."""
        rules = {rule_id: list(state) for rule_id, state in sorted(self.rules.items())}
        written = [ENTRY_VERSION, self.generation, self.latest_ms, rules]
        return json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()


def read_entry(stored: bytes, group: Group) -> PolicyEntry | None:
    """What `to_bytes` wrote for a key of a group; None where there is nothing, or of an earlier generation.

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


def quiet_until_ms(group: Group, stored: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """When the last cooldown of each key of a group is over, in ms; NO_CLOCK for none.

    Args:
        group: the group.
        stored: what is remembered of each key.
    """
    entries = (read_entry(each, group) for each in stored)
    ends_ms = [None if each is None else each.quiet_until_ms(group.policies) for each in entries]
    return np.array([NO_CLOCK if end_ms is None else end_ms for end_ms in ends_ms], np.int64)


class PolicyState:
    """What policies remember of some keys of a group, during one batch."""

    def __init__(self, entries: Entries, group: Group, identity: str, keys: Sequence[str]) -> None:
        """Nothing is read yet.

        Args:
            entries: the map of the state that keeps the entries.
            group: the group.
            identity: under which its entries lie there.
            keys: the keys, which are named by their index.
        """
        self._entries, self._group, self._identity, self._keys = entries, group, identity, keys
        self._found: dict[int, PolicyEntry | None] = {}
        self._stored: set[int] = set()
        self._changed: dict[int, None] = {}

    def read(self, keys: Iterable[int]) -> None:
        """Read the entries of keys, all in one call, but for those that have been read."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._found]
        if not wanted:
            return
        stored = self._entries.get(head_keys(self._identity, [self._keys[key] for key in wanted]))
        self._found.update((key, read_entry(each, self._group)) for key, each in zip(wanted, stored, strict=True))
        self._stored.update(key for key, each in zip(wanted, stored, strict=True) if each)

    def of(self, key: int, rule_id: str) -> RuleState:
        """What is remembered of a rule and a key that has been read."""
        entry = self._found[key]
        return NOTHING if entry is None else entry.rules.get(rule_id, NOTHING)

    def put(self, key: int, rule_id: str, state: RuleState, time_ms: int) -> None:
        """Remember something else of a rule and a key that has been read.

        Args:
            key: the index of the key.
            rule_id: the rule.
            state: what to remember.
            time_ms: the time of the event that made the difference.
        """
        entry = self._found[key]
        if entry is None:
            entry = self._found[key] = PolicyEntry(self._group.generation, time_ms, {})
        if entry.rules.get(rule_id, NOTHING) == state:
            return
        entry.rules[rule_id] = state
        self._found[key] = entry._replace(latest_ms=max(entry.latest_ms, time_ms))
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
            entry = self._found[key]
            assert entry is not None
            kept = {rule_id: state for rule_id, state in entry.rules.items() if rule_id in known and state != NOTHING}
            if kept or key in self._stored:
                put.append((head_key(self._identity, self._keys[key]), entry._replace(rules=kept).to_bytes()))
                new |= {} if key in self._stored else {self._keys[key]: entry.latest_ms}
        if put:
            self._entries.put(put)
        self._stored.update(self._changed)
        self._changed = {}
        return new

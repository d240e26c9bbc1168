"""The accounting of a batch: every event that came in came out in exactly one way.

    events in = no key + filtered out + evaluated + late + too late + duplicates + collisions not kept + dead letters
                + skipped + unjudged

*No key* are events that do not belong to the group: a field that it groups by is null. *Skipped* are messages that are
no events and not faulty, such as a deletion. *Unjudged* are events that would have been evaluated, of a topic that only
fills timelines.

The left side is counted by the first stage, the right side by the shards; the two are compared for each group. Groups
of alerts have accounts too: what went into them is counted by `alert_stage`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from buckets.engine.stages.batch_facts import BatchFacts, facts_of
from buckets.kernel.outcome import (
    COLLISION_NOT_KEPT,
    DUPLICATE,
    EVALUATED,
    LATE,
    OUTCOMES,
    OVERFLOW,
    TOO_LATE,
    UNJUDGED,
)
from buckets.rules.completeness import Stretch, Stretches, joined
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class GroupAccount:
    """What became of the events of one batch in one group.

    `rounded` is no outcome: it says how many values of measures were rounded, in all of the events that came in.
    """

    group_id: str
    group: str
    events_in: int
    filtered: int
    evaluated: int
    late: int
    too_late: int
    duplicates: int
    collisions_not_kept: int
    dead_letters: int
    alerts: int
    held_alerts: int
    no_key: int
    skipped: int = 0
    unjudged: int = 0
    rounded: int = 0

    @property
    def balance(self) -> int:
        """Events that went in and did not come out; 0 or the engine is broken."""
        out = self.no_key + self.filtered + self.evaluated + self.late + self.too_late + self.skipped
        return self.events_in - out - self.unjudged - self.duplicates - self.collisions_not_kept - self.dead_letters


@dataclass(frozen=True)
class BatchAccount:
    """What became of the events of one batch.

    Attributes:
        batch_id: the batch.
        ruleset_version: the version of the rules that evaluated it.
        events_in: rows that arrived.
        malformed: rows that were no events.
        arrived: the event times in it.
        groups: one account a group.
        ingested: when arrivals were taken in by the source, in ms since the epoch, and for how many arrivals each of
            these times stands; empty where the source does not say.
        span: the least and the greatest `source_order` of its events, None where it holds no event.
        facts: what is counted beside that, for those who watch.
    """

    batch_id: int
    ruleset_version: int
    events_in: int
    malformed: int
    arrived: Stretches
    groups: tuple[GroupAccount, ...]
    ingested: tuple[tuple[int, float], ...] = ()
    span: tuple[int, int] | None = None
    facts: BatchFacts = field(default_factory=BatchFacts, compare=False)

    def check(self) -> None:
        """Check that the accounts balance.

        Raises:
            RuntimeError: they do not; the batch must not be committed.
        """
        for account in self.groups:
            if account.balance:
                message = f"batch {self.batch_id}: {account.balance} events of group {account.group!r} are unaccounted"
                raise RuntimeError(message)

    @property
    def latest_ms(self) -> int | None:
        """The greatest event time in it, None where it holds no event."""
        return self.arrived[-1].last_ms if self.arrived else None

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of `batches`."""
        moment = None if self.latest_ms is None else datetime.fromtimestamp(self.latest_ms / 1000, UTC)
        fixed = {"batch_id": self.batch_id, "ruleset_version": self.ruleset_version, "latest_event_time": moment}
        return [fixed | vars(account) for account in self.groups]


def account_batch(batch_id: int, rule_set: RuleSet, counts: Iterable[bytes]) -> BatchAccount:
    """Add up the counts of a batch's stages.

    Args:
        batch_id: the batch.
        rule_set: its rules.
        counts: JSON of `fan_out` (arrivals), of `shard` (outcomes), of `alert_stage` (alerts that arrived), and of
            other stages what `batch_facts` knows.
    """
    arrivals = malformed = skipped = rounded = 0
    arrived: list[Stretch] = []
    ingested: list[tuple[int, float]] = []
    orders: list[int] = []
    every_group = (*rule_set.groups, *rule_set.alert_groups)
    filtered = {group.group_id: 0 for group in every_group}
    alerts, held_alerts, no_key = dict(filtered), dict(filtered), dict(filtered)
    outcomes = {group.group_id: [0] * OUTCOMES for group in every_group}
    alerts_in = {group.group_id: (0, 0) for group in rule_set.alert_groups}
    told = [json.loads(text) for text in counts]
    for count in told:
        if "arrivals" in count:
            arrivals += count["arrivals"]
            malformed += count["malformed"]
            skipped += sum(count.get("skipped", {}).values())
            rounded += sum(count.get("rounded", {}).values())
            arrived += [Stretch(*each) for each in count["arrived"]]
            orders += count.get("span", ())
            sample = count.get("ingested_ms", ())
            ingested += [(moment, count["arrivals"] / len(sample)) for moment in sample]
            for identity, number in count["filtered"].items():
                filtered[identity] += number
            for identity, number in count["no_key"].items():
                no_key[identity] += number
        elif "alerts_in" in count:
            identity, (arrived_there, broken) = count["group_id"], alerts_in[count["group_id"]]
            alerts_in[identity] = arrived_there + count["alerts_in"], broken + count["malformed"]
            filtered[identity] += count["filtered"]
            no_key[identity] += count["no_key"]
        elif "groups" in count:
            for identity, of_group in count["groups"].items():
                alerts[identity] += of_group["alerts"]
                held_alerts[identity] += of_group["held_alerts"]
                outcomes[identity] = [a + b for a, b in zip(outcomes[identity], of_group["outcomes"], strict=True)]
    groups = tuple(
        _account(
            group,
            alerts_in.get(group.group_id, (arrivals, malformed)),
            (0, 0) if group.group_id in alerts_in else (skipped, rounded),
            (no_key[group.group_id], filtered[group.group_id]),
            outcomes[group.group_id],
            alerts[group.group_id],
            held_alerts[group.group_id],
        )
        for group in every_group
    )
    span = (min(orders), max(orders)) if orders else None
    return BatchAccount(
        batch_id=batch_id,
        ruleset_version=rule_set.version,
        events_in=arrivals,
        malformed=malformed,
        arrived=joined(arrived),
        groups=groups,
        ingested=tuple(ingested),
        span=span,
        facts=facts_of(told, outcomes),
    )


def _account(
    group: Group,
    came_in: tuple[int, int],
    noted: tuple[int, int],
    left_out: tuple[int, int],
    outcomes: Sequence[int],
    alerts: int,
    held_alerts: int,
) -> GroupAccount:
    """Return the account of a group.

    Args:
        group: the group.
        came_in: how many events or alerts came in, and how many of these were malformed.
        noted: how many of what came in were neither events nor malformed, and how many values of it were rounded.
        left_out: how many do not belong to it, and how many its filter has left out.
        outcomes: how many came to each outcome.
        alerts: how many alerts there were.
        held_alerts: how many policies have held back.
    """
    (events_in, malformed), (skipped, rounded), (no_key, filtered) = came_in, noted, left_out
    return GroupAccount(
        group_id=group.group_id,
        group=group.name,
        events_in=events_in,
        filtered=filtered,
        evaluated=outcomes[EVALUATED],
        late=outcomes[LATE],
        too_late=outcomes[TOO_LATE],
        duplicates=outcomes[DUPLICATE],
        collisions_not_kept=outcomes[COLLISION_NOT_KEPT],
        dead_letters=malformed + outcomes[OVERFLOW],
        alerts=alerts,
        held_alerts=held_alerts,
        no_key=no_key,
        skipped=skipped,
        unjudged=outcomes[UNJUDGED],
        rounded=rounded,
    )

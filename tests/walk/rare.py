"""Paths that are rare: how often a walk has reached each of them, as it is seen from outside."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.walk.recorded import RecordedBatch

Row = dict[str, Any]

PATHS = {
    "a page split": "timelines of several pages, in the state",
    "a tier merged": "a bucket of the wider tier, in the state",
    "a batch replayed after half a commit": "killed in a batch whose tables had something of it; the next life did it",
    "an evicted key that returned": "a result that is not warm, of a visitor from hours ago",
    "a collision replaced or refused": "a row of `collisions`, but for an event that was kept beside another one",
    "a repeat found": "a row of `duplicates`",
    "a payment too late": "a row of `late_events` with `too_late`",
    "a sum past 64 bits": "a dead letter of a payment that is well-formed",
    "a row that is not an event": "a dead letter of any other row",
    "a payment without a key": "counted as `no_key` in a group",
    "an aggregate of no value": "a result that is NULL of a rule of one aggregate",
    "a feature of a group without the event": "a feature that is NULL, of a payment without a country",
    "an alert held by a cooldown": "a row of `held_alerts`",
    "an alert held by a snooze": "a row of `held_alerts`",
    "an alert held for want of history": "a row of `held_alerts`",
    "a count that started again": "an alert of a rule with `reset_on_alert`",
    "a rule over alerts fired": "a row of `alerts`",
    "a rule over arrays fired": "a row of `alerts`",
    "a rule fired that uses a field that came later": "a row of `alerts`",
    "bounds that are not exact": "an evaluation between buckets",
    "a list changed between batches": "another version of a list than the batch before had",
    "rules changed between batches": "another version of the rules than the batch before had",
    "the event schema changed between batches": "other terms than the batch before had",
    "precision changed between lives": "other terms than the batch before had",
}
NOT_ALWAYS = {
    "a generation that came back": "a group of the rules with another generation than it had before",
    "a sum of a feature past 64 bits": "a rule with features on trial that has no result for a payment",
    "an alert delivered again": "an id that came twice to the webhook: the job was killed before it was noted",
    "a batch replayed that was only begun": "killed in a batch that had its rules and nothing written: the third kill",
}
"""Those that are counted, and need longer walks."""
HELD = {
    "cooldown": "an alert held by a cooldown",
    "snooze": "an alert held by a snooze",
    "warm": "an alert held for want of history",
}
"""By what holds an alert back."""
OF_COMMANDS = {
    "rules backfill": ("a history filled in", "a rule that is backfilled, from the batch on at which it is"),
    "state export": ("a state carried over", "a job that went on in the checkpoint that its state was imported into"),
    "replay": ("an archive replayed", "`buckets replay` finds the same"),
    "--master": ("an archive asked by tasks", "replay, backtest and features by Spark give what one process gives"),
    "explain": ("an alert explained", "`buckets explain` computes the recorded value again, or says why there is none"),
}
"""By what a command can do, those that need it."""
OF_FILES = {
    "a stream stopped and started again": "`bs.stream` over the files of the job failed, was stopped, and went on",
}
"""Those of walks without a broker alone."""
OF_TOPICS = {
    "an outage waited out": "the broker was killed, and the job said so and went on",
    "a call answered beside the job": "an answer of `buckets serve`, compared with the tables",
    "a group cleared": "a message that has the state of a group cleared",
}
"""Those of walks with a broker alone."""


class RarePaths:
    """Counts them."""

    def __init__(self, with_topics: bool = False) -> None:
        of_commands = [path for path, _ in OF_COMMANDS.values()]
        self._paths = [*PATHS, *NOT_ALWAYS, *of_commands, *(OF_TOPICS if with_topics else OF_FILES)]
        self.counts: Counter[str] = Counter()

    def saw(self, path: str, times: int = 1) -> None:
        """A path was reached."""
        assert path in self._paths, path
        self.counts[path] += times

    def add(self, other: "RarePaths") -> None:
        """Count what another walk has reached too."""
        self.counts += other.counts

    def never(self) -> list[str]:
        """Paths that were not reached and had to be."""
        return [path for path in self._paths if not self.counts[path] and path not in NOT_ALWAYS]

    def __str__(self) -> str:
        return "\n".join(f"{self.counts[path]:7,}  {path}" for path in self._paths)


def look_at(
    rare: RarePaths, batch: RecordedBatch, before: RecordedBatch | None, found: Mapping[str, Sequence[Row]]
) -> None:
    """Count the rare paths that a batch shows.

    Args:
        rare: where they are counted.
        batch: the batch.
        before: the one before it.
        found: its rows, by output.
    """
    saw = rare.saw
    replaces = batch.terms.engine.collision == "replace"
    saw("a collision replaced or refused", sum(replaces or not row["kept"] for row in found["collisions"]))
    saw("a repeat found", len(found["duplicates"]))
    saw("a payment too late", sum(row["too_late"] for row in found["late_events"]))
    for held_by, path in HELD.items():
        saw(path, sum(row["held_by"] == held_by for row in found["held_alerts"]))
    saw("a count that started again", sum(row["rule_id"] == "not-staff" for row in found["alerts"]))
    of_alerts = {rule.rule_id for rule in batch.rule_set.rules if rule.on == "alerts"}
    saw("a rule over alerts fired", sum(row["rule_id"] in of_alerts for row in found["alerts"]))
    saw("a rule over arrays fired", sum(row["rule_id"] in ("gifts", "baskets") for row in found["alerts"]))
    of_channels = sum(row["rule_id"] == "channels" for row in found["alerts"])
    saw("a rule fired that uses a field that came later", of_channels)
    saw("bounds that are not exact", sum(row["exact"] is False for row in found["evaluations"]))
    if before is not None:
        saw("a list changed between batches", batch.list_versions != before.list_versions)
        saw("rules changed between batches", batch.rule_set.version != before.rule_set.version)
        saw("the event schema changed between batches", batch.terms.event_schema != before.terms.event_schema)
        saw("precision changed between lives", batch.terms.engine.precision != before.terms.engine.precision)

"""What Spark says of a query when it is asked: how far behind it is, how large its state is, what took long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buckets.monitor.bounded import OTHER
from buckets.monitor.lag import Partition, partitions_behind

MOST_PARTITIONS = 500
"""Of so many partitions the lag is told one by one; of all others together."""
_STATE = {
    "memory_bytes": ("memoryUsedBytes",),
    "disk_bytes": ("customMetrics", "rocksdbSstFileSize"),
}
"""Where Spark's report of a stateful operator has what is told of the state."""


@dataclass(frozen=True)
class QueryNews:
    """What is known of a query at a moment.

    Attributes:
        behind: by partition, how many messages wait to be taken in; None where Spark does not say.
        is_idle: whether its source was asked and had nothing new.
        state: bytes of the state store, in memory and on the disk.
        phases_s: by Spark's name, how long the phases of its latest batch took.
        fills: how far the history of rules is filled in, each as `FillStatus.to_json`.
        webhook: how many alerts were delivered to it, wait and were given up; empty where there is none.
        schema: `name` and `version` of the event schema of the next batch, and in `fault` why its file is not taken as
            it is by now; empty where it is not followed.
        topics_appeared: how many topics have come since the start that the source's pattern matches; None without one.
    """

    behind: Mapping[Partition, int] | None = None
    is_idle: bool = False
    state: Mapping[str, int] = field(default_factory=dict)
    phases_s: Mapping[str, float] = field(default_factory=dict)
    fills: Sequence[Mapping[str, Any]] = ()
    webhook: Mapping[str, int] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    topics_appeared: int | None = None

    @classmethod
    def of(cls, progress: dict[str, Any] | None, is_idle: bool = False) -> "QueryNews":
        """Return what Spark's report of its latest batch says; None before there is one."""
        if progress is None:
            return cls(is_idle=is_idle)
        phases_s = {name: took_ms / 1000 for name, took_ms in progress.get("durationMs", {}).items()}
        return cls(partitions_behind(progress), is_idle, _state_of(progress), phases_s)

    @property
    def lag(self) -> int | None:
        """How many messages wait in all; None where that is not known."""
        return None if self.behind is None else sum(self.behind.values())

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain data, without `is_idle`."""
        return {
            "behind": _bounded(self.behind or {}),
            "state": dict(self.state),
            "phases_s": dict(self.phases_s),
            "fills": list(self.fills),
            "webhook": dict(self.webhook),
            "schema": dict(self.schema),
            "topics_appeared": self.topics_appeared,
        }


def _bounded(behind: Mapping[Partition, int]) -> list[list[Any]]:
    """Return topic, partition and lag of partitions, the last of them together."""
    rows = [[*partition, messages] for partition, messages in behind.items()]
    if len(rows) <= MOST_PARTITIONS:
        return rows
    named, others = rows[: MOST_PARTITIONS - 1], rows[MOST_PARTITIONS - 1 :]
    return [*named, [OTHER, OTHER, sum(messages for _, _, messages in others)]]


def _state_of(progress: dict[str, Any]) -> dict[str, int]:
    """Return what a report says of the state, summed over the stateful operators."""
    state: dict[str, int] = {}
    for operator in progress.get("stateOperators", ()):
        for name, path in _STATE.items():
            value = operator
            for step in path:
                value = value.get(step, {})
            if isinstance(value, int):
                state[name] = state.get(name, 0) + value
    return state

"""Where state lies on the driver, for what happens there after the shards."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from buckets.engine.shard_store import ShardStore


@dataclass(frozen=True)
class DriverStores:
    """The state on the driver; each has a schedule of its own, since each has a clock of its own.

    Attributes:
        meeting: of rules over events with features of several groups, which meet on the driver.
        alerts: the timelines of alerts.
        alert_meeting: of rules over alerts with features of several groups.
    """

    meeting: ShardStore
    alerts: ShardStore
    alert_meeting: ShardStore

    @classmethod
    def made_by(cls, new_store: Callable[[], ShardStore]) -> "DriverStores":
        """Empty ones."""
        return cls(**{field.name: new_store() for field in fields(cls)})

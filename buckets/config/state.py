"""The settings that bound where a shard's state lies: in its log, and in memory. They never change a result."""

from buckets.config.environment import Settings
from buckets.config.size import SizeBytes


class StateSettings(Settings):
    """The `state` part of a job's configuration.

    Attributes:
        log: how much memory the newest values in the logs of all shards take together, before the oldest are moved to
            the store entry by entry. More of it: fewer writes for keys that change often, more memory in each Python
            worker, and a longer first batch after a start, which reads the logs: up to twice as much, with values that
            were replaced.
        cache: how much of what was used lately, beside the log, each Python worker keeps in memory. More of it: fewer
            reads of keys that come again after a while.
    """

    log: SizeBytes = 512 << 20
    cache: SizeBytes = 256 << 20

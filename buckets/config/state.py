"""The settings that bound where a shard's state lies: in its log, and in memory. They never change a result."""

from pydantic import BaseModel, ConfigDict

from buckets.config.size import SizeBytes


class StateSettings(BaseModel):
    """The `state` part of a job's configuration.

    Attributes:
        log: how much of what has changed lately lies in the logs of all shards together, before it is moved to the
            store entry by entry. More of it: fewer writes for keys that change often; a longer first batch after a
            start, which reads it all; and more memory, since all of it is in memory too.
        cache: how much of what was used lately, beside the log, each Python worker keeps in memory. More of it: fewer
            reads of keys that come again after a while.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    log: SizeBytes = 512 << 20
    cache: SizeBytes = 256 << 20

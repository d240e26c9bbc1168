"""How much of the state lies in a shard's log, and how much a worker remembers. Results do not depend on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Bounds of a worker.

    Attributes:
        log_bytes: how much memory the entries of a shard's log may take, before the oldest go to the store one by one.
        cache_bytes: how much memory what is remembered of a shard besides its log may take.
        shards: of how many shards something is remembered.
    """

    log_bytes: int
    cache_bytes: int
    shards: int

    @classmethod
    def of_each(cls, log_bytes: int, cache_bytes: int, shards: int) -> "Bounds":
        """Bounds of all shards together, divided among them."""
        return cls(log_bytes // shards, cache_bytes // shards, shards)

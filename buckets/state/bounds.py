"""How much memory the caches of shards may take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Bounds of caches."""

    # how much memory the entries of a shard's log may take, before the oldest go to the store one by one
    log_bytes: int
    cache_bytes: int  # how much memory what is remembered of a shard besides its log may take
    shards: int  # of how many shards something is remembered

    @classmethod
    def of_each(cls, log_bytes: int, cache_bytes: int, shards: int) -> "Bounds":
        """Divide bounds of all shards together among them."""
        return cls(log_bytes // shards, cache_bytes // shards, shards)

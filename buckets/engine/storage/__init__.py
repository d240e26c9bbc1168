"""The state of a shard as a store of entries."""

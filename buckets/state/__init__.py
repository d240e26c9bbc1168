"""A shard's state between the scorer and the store: what a batch changes lies in a log, what was used lately in memory.

Here live the layer that stands before the entries of a shard, its log, its cache, and their bounds. Nothing here knows
Spark, files, or what the entries hold.
"""

"""A shard's state between the scorer and the store: a log of changes, and a cache of recently used entries.

It has the layer in front of a shard's store, its log, its cache, and their bounds. Nothing here knows Spark, files, or
the content of entries.
"""

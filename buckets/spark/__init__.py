"""The Spark adapter, everything that imports pyspark: sources, the query and its stages, sinks, the state store.

It decodes, calls `engine`, encodes and writes. What a batch computes does not belong here.
"""

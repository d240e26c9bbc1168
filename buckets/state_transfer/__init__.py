"""Transfer of a job's state from one checkpoint to another one with other settings.

An *export* is a folder of Delta tables with a checkpoint's whole contents, and a manifest. This package computes what
changes with the settings: the groups, the encoding of their keys, and the shards of the keys. Spark reads and writes
the state itself (`spark.state_carry`).
"""

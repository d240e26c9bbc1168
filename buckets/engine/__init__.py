"""One micro-batch as pure functions: arrivals fan out to shards, a shard scores them, and the accounts are checked.

No files, threads, clocks, Kafka, Delta or Spark. The state store comes in as `Entries`: `get`, `put`, `remove` and
`list_keys`.
"""

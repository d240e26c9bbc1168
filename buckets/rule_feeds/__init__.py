"""Where a running job gets its rules from: files or a table, the rule book that follows them, and its history.

The feed of a Kafka topic is in `kafka`, since it needs a client. What a change means is in `rules`.
"""

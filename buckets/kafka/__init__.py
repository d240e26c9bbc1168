"""Everything that talks to Kafka outside Spark: clients, faults, topics, the topic of rules, a local broker.

The meaning of messages is in `rules` and `outputs`; Spark reads topics itself, in `spark/sources.py`.
"""

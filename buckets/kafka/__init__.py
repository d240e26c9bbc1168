"""Everything that talks to Kafka outside Spark: clients, faults, topics, the topic of rules, a local broker.

What a message means is in `rules` and `outputs`; Spark's own reading of topics is in `spark/sources.py`.
"""

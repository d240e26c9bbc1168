"""Everything that talks to Kafka outside Spark."""

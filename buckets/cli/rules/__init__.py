"""`buckets rules`."""

"""`buckets state`."""

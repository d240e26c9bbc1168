"""`buckets demo`."""

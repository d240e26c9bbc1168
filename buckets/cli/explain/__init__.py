"""`buckets explain`."""

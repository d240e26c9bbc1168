"""`buckets verdict` and `buckets verdicts`."""

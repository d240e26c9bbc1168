"""The command `buckets`."""

"""The archive of all that a job took in, and what of it was recorded."""

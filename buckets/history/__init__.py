"""Questions to the past of a job: the archive of arrivals, with the versions that scored them.

The engine is the same, without Spark: archived arrivals are scored again, by recorded rules or by others.
"""

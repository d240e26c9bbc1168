"""What has happened: the archive of arrivals, with the versions that scored them, and what is asked of it.

It is the same engine without Spark: archived arrivals are scored again, by recorded rules or by others.
"""

"""Delta tables without Spark: exactly-once appends, tables kept short, and columns added to older tables.

Knows nothing of the tables' contents. Spark's own writes of Delta tables are in `spark`.
"""

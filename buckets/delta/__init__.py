"""Delta tables without Spark: appends that happen once, tables kept short, and columns that older tables lack.

Knows nothing of what the tables hold. Spark's own writes of Delta tables are in `spark`.
"""

"""Topics as Delta tables, each message once: columns and constraints, rows, the folder, and the writer.

Reading the topics with Spark is in `spark/audit.py`.
"""

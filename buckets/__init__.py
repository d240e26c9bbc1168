"""Exact sliding windows for every single transaction, on Apache Spark."""

__version__ = "0.1.0"

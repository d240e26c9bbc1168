"""Fixtures of the golden cases, which run on Spark too."""

from tests.spark.shared_session import spark

__all__ = ["spark"]

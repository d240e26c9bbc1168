"""Fixtures of the tests that run on Spark."""

from tests.spark.shared_session import spark

__all__ = ["spark"]

"""The one Spark session of a test run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from buckets.spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("tests", shards=2)
    yield session
    session.stop()

"""Fixtures of the tests that run on Spark."""

import pytest

from tests.cli_unit.conftest import buckets
from tests.spark.job_folder import JobFolder
from tests.spark.payments import payments
from tests.spark.shared_session import spark

__all__ = ["buckets", "finished", "spark"]


@pytest.fixture(scope="session")
def finished(spark, tmp_path_factory) -> JobFolder:
    """A job over four JSON files that has run to its end, a file a batch, undisturbed. Nobody may change it."""
    job = JobFolder(tmp_path_factory.mktemp("finished"))
    job.add_events(payments(100), files=4)
    job.run(spark)
    return job

"""What all tests share: reproducible hypothesis runs, and a JVM that does not compile for long runs."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A third less CPU time for a job of a few small batches. Read by Spark's launcher, also in what tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Outages of real lengths, which take minutes."""
    parser.addoption("--outages", help="how long a broker is away in tests/kafka/test_outages.py, as in 60s,60s,5m")

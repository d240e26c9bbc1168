"""What all tests share: reproducible hypothesis runs, and a JVM that does not compile for long runs."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A third less CPU time for a job of a few small batches. Read by Spark's launcher, also in what tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

SLOW_TO_START = ("golden", "kafka", "setup", "spark")
"""Folders whose files each take up to minutes: a JVM, a broker, or both."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first: where several processes share them, the short ones at the end even out."""
    items.sort(key=lambda item: item.path.parent.name not in SLOW_TO_START)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Outages of real lengths, which take minutes."""
    parser.addoption("--outages", help="how long a broker is away in tests/kafka/test_outages.py, as in 60s,60s,5m")

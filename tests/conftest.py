"""What all tests share: reproducible hypothesis runs, JVMs that start quickly, and the longest files first."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.class_archive import java_options
from tests.laws import NIGHTLY, SHORT

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("short", settings.get_profile("ci"), max_examples=10, stateful_step_count=20)
settings.load_profile("short" if SHORT else "ci" if os.environ.get("CI") else "default")

pytest_plugins = ("pytester", "tests.messages")

# Read by Spark's launcher, also in what tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())

LONGEST_FIRST = (
    "kafka/test_crash.py",
    "spark/test_attempts.py",
    "cluster/test_standalone.py",
    "kafka/test_faults.py",
    "kafka/test_audit.py",
    "kafka/test_demo_kafka.py",
    "spark/test_pages.py",
    "kafka/test_pages.py",
    "spark/test_walk.py",
    "spark/test_run.py",
    "spark/test_kill.py",
    "core/test_eviction.py",
    "core/test_evicted_keys.py",
    "core/test_bounds.py",
    "core/test_shard.py",
    "kafka/test_outages.py",
    "spark/test_eviction.py",
    "spark/test_state.py",
    "kafka/test_metrics.py",
)
"""Files that take a minute or more, in the order in which they are to begin."""
SLOW_TO_START = ("cluster", "golden", "kafka", "packages", "setup", "spark", "stores")
"""Folders whose files each take up to a minute: a JVM, a broker, or both."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long forms to the night; the longest files come first, and the short ones at the end even out."""
    long_forms = [] if NIGHTLY else [item for item in items if item.get_closest_marker("nightly")]
    if long_forms:
        config.hook.pytest_deselected(items=long_forms)
        items[:] = [item for item in items if item not in long_forms]
    items.sort(key=lambda item: _turn(item.path.parent.name, item.path.name))


def _turn(folder: str, name: str) -> tuple[int, bool]:
    """The order of a test file: by its position among the longest, then by what it has to start."""
    file = f"{folder}/{name}"
    rank = LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)
    return rank, folder not in SLOW_TO_START


def pytest_addoption(parser: pytest.Parser) -> None:
    """Outages of real lengths, which take minutes."""
    kills = 1 if SHORT else 2
    parser.addoption(
        "--kills", type=int, default=kills, help="how often tests/kafka/test_crash.py kills a job under load"
    )
    parser.addoption(
        "--pictures", help="a folder for what tests/console/test_walk.py sees, such as docs/pages/pictures"
    )
    parser.addoption("--outages", help="how long a broker is away in tests/kafka/test_outages.py, as in 60s,60s,5m")

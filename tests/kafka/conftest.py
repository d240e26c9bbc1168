"""Fixtures of the tests that run against a real broker."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli_unit.conftest import buckets
from tests.kafka.broker import TestBroker
from tests.spark.shared_session import spark

__all__ = ["broker", "buckets", "own_broker", "spark"]
OwnBroker = Callable[..., TestBroker]


@pytest.fixture(scope="session")
def broker(tmp_path_factory) -> Iterator[TestBroker]:
    """A broker that all tests share: give topics names of their own, and leave it running."""
    with stopped_at_end(TestBroker(tmp_path_factory.mktemp("kafka") / "broker")) as started:
        yield started


@pytest.fixture
def own_broker(tmp_path) -> Iterator[OwnBroker]:
    """Starts a broker that a test may stop and kill: `own_broker(folder=None)`, and what a TestBroker takes."""
    with contextlib.ExitStack() as stack:
        started: list[TestBroker] = []

        def start(folder: Path | None = None, **options: Any) -> TestBroker:
            root = folder or tmp_path / f"broker-{len(started)}"
            started.append(stack.enter_context(stopped_at_end(TestBroker(root, **options))))
            return started[-1]

        yield start


@contextlib.contextmanager
def stopped_at_end(broker: TestBroker) -> Iterator[TestBroker]:
    """Nothing of a broker is left behind."""
    try:
        yield broker
    finally:
        broker.kill()

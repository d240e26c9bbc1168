"""A recorded job, a copy of it for tests that change something, and an assistant that is connected to it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli_unit.conftest import buckets
from tests.console.job_folder import write_job
from tests.mcp.assistant import Assistant, connected

__all__ = ["buckets"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """The configuration of a job that has run; not to be changed."""
    return write_job(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def copied(recorded, tmp_path) -> Path:
    """The same to be changed."""
    shutil.copytree(recorded.parent, tmp_path / "job")
    return tmp_path / "job" / "conf.yaml"


@pytest.fixture(scope="session")
def assistant(recorded, tmp_path_factory) -> Iterator[Assistant]:
    """An assistant of the recorded job."""
    with connected(recorded, tmp_path_factory.mktemp("log") / "log.txt") as one:
        yield one


@pytest.fixture
def connect(tmp_path) -> Iterator[Callable[..., Assistant]]:
    """Connects assistants to a job."""
    with ExitStack() as open_ones:
        count = 0

        def opened(conf: Path, *options: str, **how: str) -> Assistant:
            nonlocal count
            count += 1
            return open_ones.enter_context(connected(conf, tmp_path / f"log-{count}.txt", *options, **how))

        yield opened

"""Fixtures of the tests of a cluster."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.packed import build_wheel, pack
from tests.spark.shared_session import spark

__all__ = ["packed", "spark"]


class Packed(NamedTuple):
    """An environment with the wheel: where it is unpacked as `environment`, the archive of it, and the wheel."""

    folder: Path
    archive: Path
    wheel: Path


@pytest.fixture(scope="session")
def packed(tmp_path_factory) -> Packed:
    folder = tmp_path_factory.mktemp("packed")
    wheel = build_wheel(folder)
    return Packed(folder, pack(wheel, folder), wheel)

"""What tests of the core share."""

from pathlib import Path

import pytest

from buckets.checkpoint.driver_state import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint that nothing has been written to yet."""
    return Checkpoint(tmp_path / "checkpoint")

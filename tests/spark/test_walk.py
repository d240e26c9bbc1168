"""A short walk over everything with a real job; `bench/walk.py` has longer ones."""

import logging
import os

import pytest

from tests.laws import SHORT
from tests.walk.plan import make_plan
from tests.walk.walk import Walk

pytestmark = pytest.mark.spark
SEED, LIVES = 1, 4
MOST_STEPS = 12 if SHORT else None
LOG = logging.getLogger(__name__)


def test_a_walk_over_everything_leaves_what_loops_over_lists_say_and_reaches_every_rare_path(spark, tmp_path):
    """`BUCKETS_WALK_SEED` has another one walked too: `--log-cli-level INFO` says the steps."""
    own = os.environ.get("BUCKETS_WALK_SEED")
    for seed in [SEED, *([int(own)] if own else [])]:
        walk = Walk(make_plan(seed, LIVES), tmp_path / str(seed), spark, LOG.info)
        walk.run(MOST_STEPS)
        LOG.info("%s", walk.rare)
        if seed == SEED and not SHORT:
            assert walk.rare.never() == []

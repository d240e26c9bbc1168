"""Walks in one process: engine and oracle agree on everything that a plan has happen; and a seed is a plan."""

import pytest

from tests.walk.dry import DryWalk
from tests.walk.plan import make_plan

LIVES = 4


def test_a_seed_is_one_plan_and_another_seed_another():
    assert make_plan(7, LIVES) == make_plan(7, LIVES)
    assert make_plan(7, LIVES).steps != make_plan(8, LIVES).steps


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_on_a_walk_in_one_process_engine_and_oracle_agree(seed):
    walk = DryWalk(make_plan(seed, LIVES, topics=True))
    walk.run()
    for path in ("an evicted key that returned", "a generation that came back", "a sum past 64 bits"):
        assert walk.rare.counts[path], path

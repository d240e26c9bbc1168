"""Walks in one process: engine and oracle agree on everything that a plan has happen; and a seed is a plan."""

import random

import pytest

from tests.walk.catalogue import BY_ID
from tests.walk.dry import DryWalk
from tests.walk.plan import ALL, Plan, Step, make_plan
from tests.walk.stream import Stream

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


@pytest.mark.parametrize("late", ["add", "evaluate"])
@pytest.mark.parametrize(("spike", "others"), [("SHADOW", []), ("ACTIVE", []), ("PAUSE", []), ("SHADOW", ["dear"])])
def test_of_sums_of_features_past_64_bits_engine_and_oracle_agree(spike, others, late):
    """In a walk they are rare: mostly a rule of one aggregate has left the payment out for all."""
    dice = random.Random(1)
    rules = [BY_ID[rule_id].draw(dice) for rule_id in others]
    stream = Stream(dice)
    files = [Step(number, "add_file", {"of": "huge", "lines": stream.file("huge")}) for number in (3, 4)]
    begin = Step(1, "configure", {"precision": ALL})
    written = Step(2, "write_rules", {"note": "", "rules": [*rules, BY_ID["spike"].draw(dice) | {"state": spike}]})
    walk = DryWalk(Plan(1, {"shards": 2, "allowed_lateness": "10m", "late": late}, (begin, written, *files)))
    walk.run()
    assert bool(walk.rare.counts["a sum past 64 bits"]) == (spike != "PAUSE")
    assert bool(walk.rare.counts["a sum of a feature past 64 bits"]) == (spike == "SHADOW")

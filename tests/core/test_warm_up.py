"""What is compiled ahead: every kernel, once, so that nothing is compiled in the middle of a run."""

from decimal import Decimal
from unittest import mock

import pytest
from numba.core.dispatcher import Dispatcher

from buckets import byte_strings
from buckets.engine.batch.partitioner import assign_shards, number_pairs
from buckets.engine.eviction import chunks, eviction, shard_clock
from buckets.engine.stages.warm_up import warm_up
from buckets.engine.storage import arena
from buckets.kernel import keyed_events
from buckets.kernel.needed_pages import choose_pages, score_groups
from buckets.rules.rule_set import next_rule_set
from buckets.timeline.inspection import read_heads, unreadable
from tests.core.examples import rule, until
from tests.core.test_eviction import LATENESS_MS, Shard, one_voter, small
from tests.features import NAMES, FeatureEngine, Wanted
from tests.oracle import Event

KERNELS = (
    *(score_groups, choose_pages, read_heads, unreadable, number_pairs, assign_shards),
    *(
        each
        for module in (arena, byte_strings, chunks, keyed_events, shard_clock)
        for each in vars(module).values()
        if isinstance(each, Dispatcher)
    ),
)
__all__ = ["one_voter"]


def signatures() -> list[list[object]]:
    return [kernel.signatures for kernel in KERNELS]


def test_a_run_with_late_events_collisions_and_a_sweep_that_trims_compiles_no_kernel_again():
    warm_up()
    before = signatures()
    assert [len(each) for each in before] == [1] * len(KERNELS)
    with small(), mock.patch.object(eviction, "score_all", wraps=eviction.score_all) as trimming:
        rules = [rule("brief", length="20ms"), rule("fee", "fee", length="20ms"), rule("long", length="400ms")]
        one = Shard(rules, precision={"tail": "100ms", "resolution": "10ms"}, late="evaluate", collision="replace")
        for at in range(0, 300, 3):
            one.take(("key", at), ("key", max(at - 4, 0)))
        assert not trimming.called
        one.rule_set = next_rule_set(one.rule_set, rules[:2], until(297), LATENESS_MS)
        one.take(("other", 300))
        assert trimming.called
        one.pass_by("other", 400)
    assert signatures() == before


@pytest.mark.parametrize("function", NAMES)
def test_a_run_with_a_function_of_single_events_compiles_no_kernel_again(function):
    warm_up()
    before = signatures()
    engine = FeatureEngine([Wanted(function, counted="ok"), Wanted(function, second="fee")], late="evaluate")
    engine.run([[Event(f"e{at}", at - at % 3, "k", (Decimal(at), Decimal(at), Decimal(1)))] for at in range(20)])
    assert engine.pages
    assert signatures() == before

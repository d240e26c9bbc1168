"""Keys of a sample, and the partitions of a topic in which they are seen."""

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import fan_out
from buckets.engine.batch.key_partitions import SAMPLED_KEYS, SampledKeys, joined_seen
from buckets.events.arrivals import INGESTED, POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import rule
from tests.spark.payments import EVENT_SCHEMA

RULES = first_rule_set([rule("a", group_by=["payer"]), rule("b", group_by=["payer", "kind"]), rule("c", group_by=[])])


def seen(events, shards=1, is_topic=True):
    """What a piece of payments, as partition and payer, has seen."""
    count = len(events)
    columns = {
        SOURCE: pa.array([f"t[{partition}]" for partition, _ in events], pa.string()),
        SOURCE_ORDER: pa.array([partition for partition, _ in events], pa.int64()),
        POSITION: pa.array(range(count), pa.int64()),
    }
    fields = [
        [f"e{number}" for number in range(count)],
        [str(1000 + number) for number in range(count)],
        [payer for _, payer in events],
        ["CARD"] * count,
        ["1.00"] * count,
    ]
    columns |= {field_column(index): pa.array(values, pa.string()) for index, values in enumerate(fields)}
    if is_topic:
        columns[INGESTED] = pa.array([0] * count, pa.int64())
    messages = list(fan_out(pa.record_batch(columns), RULES, EVENT_SCHEMA, EngineSettings(shards=shards)).messages())
    (counts,) = [json.loads(each.payload[1:]) for each in messages if each.payload[:1] == payload.COUNTS]
    return counts.get("partitions", {})


def sampled(pieces):
    """The sample of each group after some pieces, each a batch."""
    keys = {}
    for piece in pieces:
        for group, pairs in joined_seen([piece]).items():
            keys.setdefault(group, SampledKeys()).add(pairs)
    return {group: found.to_json() for group, found in keys.items()}


EVENTS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "a", "bb", "zoë", "a\0b", "ä" * 200])), max_size=30)


@given(EVENTS, st.integers(1, 7))
def test_keys_in_several_partitions_are_counted_however_batches_are_cut(events, size):
    pieces = [sorted(events[start : start + size]) for start in range(0, len(events), size)]
    partitions = {payer: {partition for partition, of in events if of == payer} for _, payer in events}
    several = sum(len(found) > 1 for found in partitions.values())
    expected = {"sampled": len(partitions), "several": several}
    found = sampled(seen(piece) for piece in pieces)
    assert found == ({"payer": expected, "payer, kind": expected} if events else {})


def test_of_many_keys_a_sample_is_looked_at_which_is_the_same_in_each_batch():
    first = [(0, f"payer {number}") for number in range(3 * SAMPLED_KEYS)]
    again = [(number % 2, payer) for number, (_, payer) in enumerate(first)]
    apart = sampled([seen(first), seen(sorted(again[:400])), seen(sorted(again[400:]))])
    assert apart == sampled([seen(sorted(first + again))])
    counts = apart["payer"]
    assert counts["sampled"] == SAMPLED_KEYS
    assert 0.35 * SAMPLED_KEYS < counts["several"] < 0.65 * SAMPLED_KEYS


def test_one_shard_is_looked_at_and_nothing_of_sources_without_partitions():
    events = [(0, f"payer {number}") for number in range(800)]
    counts = sampled([seen(events, shards=8)])
    assert 60 < counts["payer"]["sampled"] < 140
    assert seen(events, is_topic=False) == {}

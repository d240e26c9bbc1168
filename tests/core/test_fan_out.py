"""The first stage: each event reaches one shard of every group whose filter it passes."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import ShardMessage, attribute_column, fan_out, measure_column
from buckets.engine.batch.payload import PASSING
from buckets.engine.batch.shard_events import ShardEvents, unpack_shard
from buckets.engine.storage.key import shards_of
from buckets.rules.rule_set import RuleSet, first_rule_set
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import arrivals

RULES = first_rule_set(
    [
        rule("a"),
        rule("b", group_by=["payer", "account"]),
        rule("c", where={"kind": "x"}),
        rule("d", group_by=[], where={"amount": {">": "5"}}),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "payer": st.sampled_from(["p1", "p2", "é", "a\x00b"]),
            "kind": st.sampled_from(["x", "y"]),
            "account": st.integers(0, 2),
            "vip": st.sampled_from(["true", "false", None]),
            "amount": st.sampled_from(["1.00", "5.00", "9.00", "ten"]),
            "fee": st.sampled_from([None, 3]),
        }
    ),
    max_size=25,
)


def sent(rows, rule_set: RuleSet = RULES, shards: int = 4) -> list[ShardMessage]:
    numbered = [{"id": f"e{n}", "at": 1000 + n % 3} | row for n, row in enumerate(rows)]
    return list(fan_out(arrivals(numbered, SCHEMA), rule_set, SCHEMA, EngineSettings(shards=shards)).messages())


@given(ROWS)
def test_what_stays_in_the_process_is_what_another_one_unpacks(rows):
    numbered = [{"id": f"e{n}", "at": 1000 + n % 3} | row for n, row in enumerate(rows)]
    fanned = fan_out(arrivals(numbered, SCHEMA), RULES, SCHEMA, EngineSettings(shards=4))
    packed, unpacked = list(fanned.messages()), list(fanned.unpacked())
    assert [shard for shard, _ in unpacked] == [message.shard for message in packed]
    for message, (_, here) in zip(packed, unpacked, strict=True):
        if isinstance(here, bytes):
            assert here == message.payload
        else:
            there = unpack_shard(message.payload)
            assert here.group_ids == there.group_ids
            assert here.events.equals(there.events)
            assert [column.tolist() for column in here[1:6]] == [column.tolist() for column in there[1:6]]


def tables(messages, group):
    """Shards and events of one group, with their keys."""
    found = []
    for each in messages:
        if each.payload[:1] == payload.SHARD:
            arrived = ShardEvents.of([unpack_shard(each.payload)], [group.group_id for group in RULES.groups])
            if group.group_id in arrived.group_ids:
                events, codes, _, keys = arrived.by_key(arrived.group_ids.index(group.group_id))
                key = pa.DictionaryArray.from_arrays(pa.array(codes), keys)
                found.append((each.shard, events.append_column("key", key)))
    return found


def has_key(row, group) -> bool:
    return all(row[name] is not None for name in group.fields)


def passes(row, group) -> bool:
    if row["amount"] == "ten" or not has_key(row, group):
        return False
    tests = {condition.field for condition in group.where}
    return ("kind" not in tests or row["kind"] == "x") and ("amount" not in tests or row["amount"] == "9.00")


@given(ROWS, st.integers(1, 6))
def test_an_event_reaches_exactly_one_shard_of_every_group_whose_filter_it_passes(rows, shards):
    messages = sent(rows, shards=shards)
    for group in RULES.groups:
        found = tables(messages, group)
        positions = sorted(position for _, table in found for position in table["position"].to_pylist())
        assert positions == [n for n, row in enumerate(rows, 1) if passes(row, group)]
        assert len({shard for shard, _ in found}) == len(found)


@pytest.mark.slow
@given(ROWS, st.integers(1, 6))
def test_the_shard_follows_from_group_and_key_alone(rows, shards):
    for group in RULES.groups:
        for shard, table in tables(sent(rows, shards=shards), group):
            keys = table["key"].to_pylist()
            assert set(shards_of(group, pa.array(keys), shards).tolist()) == {shard}
            for key, position in zip(keys, table["position"].to_pylist(), strict=True):
                (_, alone), *_ = tables(sent([rows[position - 1]], shards=shards), group)
                assert alone["key"].to_pylist() == [key]


@given(ROWS)
def test_events_stand_key_by_key_and_each_keys_in_arrival_order(rows):
    for group in RULES.groups:
        for _, table in tables(sent(rows), group):
            codes, positions = table["key"].combine_chunks().indices.to_pylist(), table["position"].to_pylist()
            assert list(zip(codes, positions, strict=True)) == sorted(zip(codes, positions, strict=True))
            assert table["time_ms"].to_pylist() == [1000 + (position - 1) % 3 for position in positions]
            assert table["event_id"].to_pylist() == [f"e{position - 1}" for position in positions]


@given(ROWS)
def test_values_travel_with_their_event(rows):
    for group in RULES.groups:
        for _, table in tables(sent(rows), group):
            for event in table.to_pylist():
                row = rows[event["position"] - 1]
                assert event[measure_column("amount")] == int(row["amount"].replace(".", ""))
                for name in ("payer", "kind", "account"):
                    assert event[attribute_column(name)] == row[name]


def test_without_whole_events_only_attributes_that_are_read_travel():
    rules = first_rule_set([rule("c", where={"kind": "x"})])
    rows = arrivals([{"id": "e", "at": 1, "payer": "p", "kind": "x", "amount": "1.00"}], SCHEMA)
    first = next(fan_out(rows, rules, SCHEMA, EngineSettings(shards=1), whole=False).messages())
    names = unpack_shard(first.payload).events.column_names
    assert [name for name in names if name.startswith(attribute_column(""))] == [attribute_column("kind")]
    assert measure_column("amount") in names


@given(ROWS)
def test_rows_are_counted_as_arrived_malformed_and_filtered_out(rows):
    messages = sent([row | {"source_order": 7 - n} for n, row in enumerate(rows)])
    (counts,) = [json.loads(each.payload[1:]) for each in messages if each.payload[:1] == payload.COUNTS]
    good = [(n, row) for n, row in enumerate(rows) if row["amount"] != "ten"]
    times_ms = [1000 + n % 3 for n, _ in good]
    assert counts == {
        "arrivals": len(rows),
        "malformed": len(rows) - len(good),
        "filtered": {g.group_id: sum(has_key(row, g) and not passes(row, g) for _, row in good) for g in RULES.groups},
        "no_key": {g.group_id: sum(not has_key(row, g) for _, row in good) for g in RULES.groups},
        "arrived": [[min(times_ms), max(times_ms)]] if good else [],
    } | (
        {"span": [7 - good[-1][0], 7 - good[0][0]], "times": dict.fromkeys(("times", "counted"), len(good))}
        if good
        else {}
    ) | ({"reasons": {"amount": len(rows) - len(good)}} if len(good) < len(rows) else {})


@given(ROWS)
def test_dead_letters_and_counts_pass_by_on_a_shard_of_their_own(rows):
    messages = sent(rows)
    assert all((each.shard == PASSING) == (each.payload[:1] != payload.SHARD) for each in messages)
    dead_letters = [payload.unpack(each.payload) for each in messages if each.payload[:1] == payload.DEAD_LETTERS]
    positions = [position for table in dead_letters for position in table["position"].to_pylist()]
    assert positions == [n for n, row in enumerate(rows, 1) if row["amount"] == "ten"]

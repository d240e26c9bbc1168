"""Keys of several groups in columns are pairs of a group and a key."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.engine.batch.partitioner import number_pairs
from buckets.engine.storage.shard_store import GroupedKeys

GROUPS = ["11" * 8, "0f" * 8, "22" * 8]
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=4)), max_size=9)


@given(PAIRS, st.data())
def test_what_is_taken_and_joined_are_the_same_pairs(pairs, data):
    indices = data.draw(st.lists(st.integers(0, len(pairs) - 1), max_size=9) if pairs else st.just([]))
    keys = GroupedKeys(
        GROUPS, np.array([group for group, _ in pairs], np.int64), ByteStrings.of([key for _, key in pairs])
    )
    other = GroupedKeys(GROUPS[::-1], 2 - keys.groups, keys.state_keys)
    together = GroupedKeys.joined([keys.take(np.array(indices, np.int64)), other])
    named = [together.group_ids[group] for group in together.groups]
    expected = [*(pairs[index] for index in indices), *pairs]
    assert [*zip(named, together.state_keys.to_list(), strict=True)] == [
        (GROUPS[group], key) for group, key in expected
    ]
    numbers = keys.each({GROUPS[0]: 5, GROUPS[2]: -7}, 3)
    assert numbers.tolist() == [(5, 3, -7)[group] for group, _ in pairs]


@given(PAIRS)
def test_groups_that_stand_together_are_found_where_they_stand(pairs):
    pairs = sorted(pairs, key=lambda pair: pair[0])
    keys = GroupedKeys(
        GROUPS, np.array([group for group, _ in pairs], np.int64), ByteStrings.of([key for _, key in pairs])
    )
    found = [(group_id, key) for group_id, of_group in keys.stretches() for _, key in pairs[of_group]]
    assert found == [(GROUPS[group], key) for group, key in pairs]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-(2**62), -8, 0, 8, 2**62])), max_size=30))
def test_pairs_are_numbered_as_they_come(pairs):
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    numbers, seen = number_pairs(one, other)
    distinct = list(dict.fromkeys(pairs))
    assert [pairs[row] for row in seen.tolist()] == distinct
    assert numbers.tolist() == [distinct.index(pair) for pair in pairs]

"""Named tuples of arrays in compiled code, which are handed over by the address of a place that is used again."""

import numpy as np

from buckets.byte_strings import ByteStrings
from buckets.compiled import allocating, compiled


@compiled
def exchanged(one: ByteStrings, other: ByteStrings, times):
    for _ in range(times):
        one, other = other, one
    return one, other


@allocating
def numbered(number):
    return ByteStrings(np.full(3, number, np.uint8), np.full(2, number, np.int64))


@compiled
def last_two(count):
    before, newest = numbered(0), numbered(0)
    for number in range(1, count):
        before = newest
        newest = numbered(number)
    return before, newest


def strings(*texts: bytes) -> ByteStrings:
    return ByteStrings.of(list(texts))


def test_variables_that_exchange_their_tuples_keep_both():
    for times in range(4):
        found = [list(each.to_list()) for each in exchanged(strings(b"a", b"bc"), strings(b"d"), times)]
        assert found == ([[b"a", b"bc"], [b"d"]], [[b"d"], [b"a", b"bc"]])[times % 2]


def test_a_variable_keeps_the_tuple_that_was_made_a_round_before():
    before, newest = last_two(200)
    assert (before.data.tolist(), before.start.tolist()) == ([198] * 3, [198] * 2)
    assert (newest.data.tolist(), newest.start.tolist()) == ([199] * 3, [199] * 2)

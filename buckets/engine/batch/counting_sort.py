"""Rows by key: stable sorts of many rows over few keys, in linear time."""

import numpy as np

from buckets.compiled import compiled


@compiled
def sort_by_code(codes, distinct):
    """Return a stable counting sort.

    Args:
        codes: integers `(rows,)` in `[0, distinct)`.
        distinct: how many codes there are.

    Returns:
        The rows in order of their codes, int64 `(rows,)`, and where each code's rows begin, int64 `(distinct + 1,)`.
    """
    start = np.zeros(distinct + 1, np.int64)
    for row in range(codes.shape[0]):
        start[codes[row] + 1] += 1
    for code in range(distinct):
        start[code + 1] += start[code]
    next_row = start[:-1].copy()
    order = np.empty(codes.shape[0], np.int64)
    for row in range(codes.shape[0]):
        order[next_row[codes[row]]] = row
        next_row[codes[row]] += 1
    return order, start


@compiled
def number_pairs(one, other):
    """Number pairs of integers in the order in which they first occur.

    Args:
        one: int64 `(rows,)`, the first of each pair.
        other: int64 `(rows,)`, the second.

    Returns:
        Each row's number, int64 `(rows,)`, and the row in which each number occurs first, int64.
    """
    rows = one.shape[0]
    size = 1
    while size < 2 * rows:
        size *= 2
    table, numbers, seen = np.full(size, -1, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    count = 0
    for row in range(rows):
        mixed = (np.uint64(other[row]) ^ (np.uint64(one[row]) << np.uint64(40))) * np.uint64(0xD6E8FEB86659FD93)
        slot = np.int64(mixed >> np.uint64(32)) & (size - 1)
        while table[slot] >= 0 and (one[seen[table[slot]]] != one[row] or other[seen[table[slot]]] != other[row]):
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = count
            seen[count] = row
            count += 1
        numbers[row] = table[slot]
    return numbers, seen[:count]

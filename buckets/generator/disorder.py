"""The order in which transactions arrive: by time, but for a share that is late, repeated or collides.

Each transaction meets at most one of the three, planted ones none. Late means late for somebody: where it can
be, a later payment on the same card arrives first, otherwise a later payment of the stream.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import Integers, Transactions, concatenate

_LONGEST_REPEAT_MS = 60_000
_NEVER_MS = 2**62
_SHARE_LATE_ON_CARD = 0.5
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class DisorderCounts:
    """How many transactions arrive late, again, or at a time already taken; how many lines are broken."""

    late: int
    duplicates: int
    collisions: int
    malformed: int


def disorder(
    rng: np.random.Generator, settings: GeneratorSettings, events: Transactions, planted: Flags
) -> tuple[Transactions, DisorderCounts]:
    """Put transactions, by time and numbered, into the order of arrival; planted ones arrive on time and once.

    Returns:
        The transactions in arrival order, repeats and twins included, and how many are what.
    """
    late_row, delay_ms = _draw_late(rng, settings, events, planted)
    taken = planted.copy()
    taken[late_row] = True
    others = rng.permutation(np.flatnonzero(~taken))
    repeats = round(settings.duplicate_rate * len(events))
    twins = round(settings.collision_rate * len(events))
    repeat_row, twin_row = others[:repeats], others[repeats : repeats + twins]

    arrival_ms = events.event_time_ms.copy()
    arrival_ms[late_row] += delay_ms
    again_ms = arrival_ms[repeat_row] + rng.integers(1, _LONGEST_REPEAT_MS, len(repeat_row))
    original = np.concatenate([np.arange(len(events)), twin_row, repeat_row])
    at_ms = np.concatenate([arrival_ms, arrival_ms[twin_row], again_ms])
    copies = np.repeat([0, 1, 2], [len(events), len(twin_row), len(repeat_row)])
    rows = concatenate([events, _twins(rng, events.take(twin_row), len(events)), events.take(repeat_row)])
    counts = DisorderCounts(len(late_row), len(repeat_row), len(twin_row), 0)
    return rows.take(np.lexsort((copies, original, at_ms))), counts


def _twins(rng: np.random.Generator, events: Transactions, first_number: int) -> Transactions:
    """Make other transactions with the same payer, beneficiary, card and time, numbered from `first_number`."""
    cents = np.rint(events.amount_cents * rng.uniform(0.5, 1.5, len(events))).astype(np.int64)
    return replace(events, number=first_number + np.arange(len(events)), amount_cents=np.maximum(cents, 1))


def _draw_late(
    rng: np.random.Generator, settings: GeneratorSettings, events: Transactions, planted: Flags
) -> tuple[Integers, Integers]:
    """Draw rows that come late, and by how many ms; each long enough for a later event to come first."""
    wanted = round(settings.late_rate * len(events))
    nobody = np.zeros(len(events), bool)
    longest_ms = settings.max_delay_ms
    on_card = ~planted & (_next_gap_ms(events, events.card, nobody) < longest_ms)
    in_stream = ~planted & (_next_gap_ms(events, np.zeros_like(events.card), nobody) < longest_ms)
    first = rng.permutation(np.flatnonzero(on_card))[: round(wanted * _SHARE_LATE_ON_CARD)]
    in_stream[first] = False
    second = rng.permutation(np.flatnonzero(in_stream))[: wanted - len(first)]

    late = nobody.copy()
    late[first] = late[second] = True
    card_gap_ms = _next_gap_ms(events, events.card, late)
    stream_gap_ms = _next_gap_ms(events, np.zeros_like(events.card), late)
    by_card = card_gap_ms < longest_ms
    by_card[second] = False
    gap_ms = np.where(by_card, card_gap_ms, stream_gap_ms)
    row = np.flatnonzero(late & (gap_ms < longest_ms))
    slack_ms = longest_ms - gap_ms[row]
    return row, gap_ms[row] + 1 + (rng.random(len(row)) * slack_ms).astype(np.int64)


def _next_gap_ms(events: Transactions, key: Integers, late: Flags) -> Integers:
    """Return for each event how long it is until the next later event of its key that comes on time."""
    count = len(events)
    order = np.lexsort((events.event_time_ms, key))
    time_ms, sorted_key = events.event_time_ms[order], key[order]
    on_time = np.where(late[order], count, np.arange(count))
    following = np.append(np.minimum.accumulate(on_time[::-1])[::-1][1:], count)
    has_next = following < count
    position = np.where(has_next, following, 0)
    has_next &= (sorted_key[position] == sorted_key) & (time_ms[position] > time_ms)
    gap_ms = np.empty(count, np.int64)
    gap_ms[order] = np.where(has_next, time_ms[position] - time_ms, _NEVER_MS)
    return gap_ms

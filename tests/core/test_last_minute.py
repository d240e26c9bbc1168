"""The last minute of a job: its rates, and the quantiles of its delays."""

import gc
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from buckets.duration import MINUTE_MS
from buckets.monitor.pace import LastMinute, weighted_quantiles
from tests.core.done_batches import NOW_MS, batch

SHARES = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0]


@given(st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(1, 9)), min_size=1, max_size=60))
def test_weighted_quantiles_are_those_of_every_value_written_out(pairs):
    values, weights = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
    written_out = np.quantile(np.repeat(values, weights), SHARES, method="inverted_cdf")
    assert weighted_quantiles(values, weights.astype(np.float64), SHARES) == written_out.tolist()


def test_weights_of_a_sample_need_not_be_whole_numbers():
    tenths = np.full(10, 0.1)
    assert weighted_quantiles(np.arange(10), tenths, [0.1, 0.3, 0.5, 0.7, 1.0]) == [0, 2, 4, 6, 9]


def test_latency_is_from_the_taking_in_of_an_event_to_the_writing_of_its_batch():
    minute = LastMinute()
    minute.add(batch(ingested=[(NOW_MS - 100, 98.0), (NOW_MS - 900, 1.0)]))
    minute.add(batch(ingested=[(NOW_MS - 250, 1.0)], duration_s=0.3))
    summary = minute.summary(NOW_MS)
    assert summary["latency_ms"] == {"p50": 100, "p99": 250, "p99.9": 900, "max": 900}
    assert summary["batch_ms"] == {"p50": 100, "p99": 300, "p99.9": 300, "max": 300}


def test_a_source_that_does_not_say_when_it_took_events_in_has_no_latency():
    minute = LastMinute()
    minute.add(batch())
    assert minute.summary(NOW_MS)["latency_ms"] is None
    assert LastMinute().summary(NOW_MS)["batch_ms"] is None


def test_a_batch_counts_for_one_minute():
    minute = LastMinute()
    minute.add(batch(events=60))
    minute.add(batch(events=120, written_ms=NOW_MS + 30_000))
    seen = [minute.summary(NOW_MS + after_ms)["events"] for after_ms in (30_000, MINUTE_MS - 1, MINUTE_MS)]
    assert seen == [180, 180, 120]
    assert minute.summary(NOW_MS + 30_000 + MINUTE_MS)["events_per_s"] == 0


def test_the_accounts_of_a_batch_are_not_kept():
    minute, done = LastMinute(), batch(events=60)
    account = weakref.ref(done.account)
    minute.add(done)
    del done
    gc.collect()
    assert account() is None
    assert minute.summary(NOW_MS)["events"] == 60


def test_the_rate_is_over_the_minute_or_over_the_time_since_the_first_batch_began():
    minute = LastMinute()
    minute.add(batch(events=60, duration_s=2.0))
    assert minute.summary(NOW_MS)["events_per_s"] == 30
    assert minute.summary(NOW_MS + 4_000)["events_per_s"] == 10
    assert minute.summary(NOW_MS + MINUTE_MS - 1)["events_per_s"] == 1


def test_events_are_counted_by_second_the_latest_last():
    minute = LastMinute()
    for ago_ms, events in ((2_500, 5), (1_200, 6), (1_100, 7), (0, 8)):
        minute.add(batch(events=events, written_ms=NOW_MS - ago_ms, duration_s=0.5))
    assert minute.summary(NOW_MS)["events_by_second"] == [5, 13, 8]

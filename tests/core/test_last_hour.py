"""What a status keeps of the last hour, also over a restart of its job."""

import pytest

from buckets.clock import epoch_ms
from buckets.monitor.live import LiveStatus, live_path, read_live
from buckets.monitor.pace import RECORDED_EVERY_S, LastHour, LiveSample, recorded_hour
from buckets.rules.rule_set import first_rule_set
from tests.core.done_batches import batch
from tests.core.examples import rule


def at(time_s: int, events_per_s: float = 0.0) -> LiveSample:
    return LiveSample(time_s, events_per_s, 0.0, None, None, None, None)


@pytest.fixture
def hour_of(tmp_path):
    """Runs a job of a checkpoint with batches; what its status has kept of the last hour."""

    def run(*batches):
        with LiveStatus(tmp_path, lambda: first_rule_set([rule("one")])) as status:
            for each in batches:
                status.on_batch(each)
        return recorded_hour(read_live(tmp_path).data)

    return run


def test_of_each_half_minute_the_latest_sample_is_kept_and_none_for_longer_than_an_hour():
    hour = LastHour()
    for time_s in range(7200):
        hour.add(at(time_s, time_s))
    kept = [LiveSample(*sample) for sample in hour.to_json()]
    assert [sample.time_s for sample in kept] == list(range(3600 - 1, 7200, RECORDED_EVERY_S))
    assert kept[-1].events_per_s == 7199


def test_the_hour_of_a_job_goes_on_where_it_is_started_again(hour_of):
    first = hour_of(batch(60, written_ms=epoch_ms(), ingested=[(epoch_ms() - 150, 60.0)]))
    assert first[-1].events_per_s > 0
    assert first[-1].batch_ms == 100
    second = hour_of()
    assert second[0].time_s // RECORDED_EVERY_S == first[0].time_s // RECORDED_EVERY_S
    assert len(second) <= 2


def test_a_status_that_cannot_be_read_does_not_keep_a_job_from_starting(hour_of, tmp_path):
    live_path(tmp_path).parent.mkdir(parents=True)
    live_path(tmp_path).write_text("nothing of this")
    assert len(hour_of()) == 1

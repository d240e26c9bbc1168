"""When a job is alive, and when it is ready; and who answers that, over HTTP."""

import json

import pytest

from buckets.clock import epoch_ms
from buckets.config.settings import MetricsSettings
from buckets.errors import BucketsError
from buckets.kafka.local_broker import free_port
from buckets.metrics.endpoint import alive, metrics_endpoint, ready
from buckets.monitor.query_news import QueryNews
from tests.core.metrics.statuses import BATCH, audit_status, job_status
from tests.prometheus import get


def state(status, ready_lag: int = 100) -> tuple[bool, str]:
    health = ready(status, epoch_ms(), ready_lag)
    return health.is_well, health.reason


def test_a_job_that_scores_and_follows_its_rules_is_ready(tmp_path):
    assert state(job_status(tmp_path, BATCH)) == (True, "batch 0 is written, 7 messages behind")
    assert state(job_status(tmp_path, BATCH), ready_lag=7)[0]


def test_a_quiet_source_makes_a_job_ready_too(tmp_path):
    assert state(job_status(tmp_path, news=QueryNews(is_idle=True))) == (True, "there is nothing to score")


def test_a_job_is_not_ready_while_it_starts_is_behind_or_does_not_follow_its_rules(tmp_path, as_worded):
    behind, broken = job_status(tmp_path, BATCH), job_status(tmp_path, BATCH, fault="rules.yaml:3: no such field")
    silent = behind | {"written_ms": epoch_ms() - 35_500}
    ended = behind | {"ended_ms": 1, "failure": "the broker is away"}
    answers = [
        state(None), state(job_status(tmp_path)), state(behind, ready_lag=6), state(broken), state(silent), state(ended)
    ]  # fmt: skip
    assert [is_well for is_well, _ in answers] == [False] * 6
    assert as_worded("\n".join(reason for _, reason in answers))


def test_a_job_is_alive_until_it_has_ended(tmp_path):
    status = job_status(tmp_path)
    assert alive(None).is_well
    assert alive(status | {"written_ms": 0}).is_well
    assert not alive(status | {"ended_ms": 1}).is_well


def test_an_audit_is_ready_after_a_batch():
    assert state(audit_status()) == (True, "batch 4 is written")


# Over HTTP


@pytest.fixture
def settings() -> MetricsSettings:
    return MetricsSettings(port=free_port(), ready_lag=100)


def url(settings: MetricsSettings, path: str) -> str:
    return f"http://127.0.0.1:{settings.port}{path}"


def test_the_endpoint_answers_before_there_is_a_status_and_with_it(settings, tmp_path):
    with metrics_endpoint(settings) as endpoint:
        code, text = get(url(settings, "/readyz"))
        assert (code, json.loads(text)) == (503, {"status": "unavailable", "reason": "it is starting"})
        assert "buckets_build_info" in get(url(settings, "/metrics"))[1]
        assert get(url(settings, "/healthz"))[0] == 200
        status = job_status(tmp_path, BATCH)
        endpoint.follow(lambda: status, audit_status)
        assert json.loads(get(url(settings, "/readyz"))[1])["reason"] == "batch 0 is written, 7 messages behind"
        text = get(url(settings, "/metrics"))[1]
        assert "buckets_events_total 10.0" in text
        assert 'buckets_audit_messages_total{table="alerts"} 3.0' in text
        assert get(url(settings, "/"))[0] == 404
    assert get(url(settings, "/healthz"))[0] == 0


def test_a_defect_in_the_metrics_is_answered_and_the_endpoint_goes_on(settings):
    with metrics_endpoint(settings) as endpoint:
        endpoint.follow(lambda: {})
        assert get(url(settings, "/metrics")) == (500, "KeyError: 'host'")
        assert get(url(settings, "/x"))[0] == 404


def test_a_port_in_use_and_a_host_that_is_not_here_are_refused_in_one_line(settings, as_worded):
    with metrics_endpoint(settings), pytest.raises(BucketsError, check=as_worded), metrics_endpoint(settings):
        pass
    elsewhere = settings.model_copy(update={"host": "192.0.2.1", "port": 9464})
    with pytest.raises(BucketsError, check=as_worded), metrics_endpoint(elsewhere, "audit.metrics.port"):
        pass


def test_without_settings_nobody_listens():
    with metrics_endpoint(None) as endpoint:
        endpoint.follow(lambda: {})

"""Clients of the metrics endpoint that do not end their requests, or do not read answers, keep nobody from it."""

import http.client
import socket
import threading

import pytest

from buckets.config.settings import MetricsSettings
from buckets.kafka.local_broker import free_port
from buckets.metrics import endpoint
from buckets.metrics.endpoint import metrics_endpoint
from tests.half_open import drip_until_closed, half_open, is_closed

CLIENTS = 320


@pytest.fixture
def place():
    settings = MetricsSettings(port=free_port())
    with metrics_endpoint(settings):
        yield settings.host, settings.port


def asked(place: tuple[str, int], path: str = "/metrics") -> int:
    connection = http.client.HTTPConnection(*place, timeout=30)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.slow
def test_metrics_are_told_beside_many_half_open_connections(place):
    before = threading.active_count()
    with half_open(place, CLIENTS) as clients:
        assert [asked(place, path) for path in ("/metrics", "/healthz", "/nothing")] == [200, 200, 404]
        assert is_closed(clients[0])
        assert threading.active_count() - before < CLIENTS / 2


def test_a_request_has_a_time_for_all_of_it_however_slowly_it_comes(place, monkeypatch):
    monkeypatch.setattr(endpoint, "REQUEST_WITHIN_S", 0.5)
    with socket.create_connection(place, timeout=30) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        drip_until_closed(client)
    assert asked(place) == 200

"""Clients that do not end their requests, or do not read answers, keep nobody from the pages of a console."""

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from buckets import connections
from buckets.connections import most_connections
from buckets.kafka.local_broker import free_port
from tests.console.served import serving
from tests.half_open import drip_until_closed, half_open, is_closed

CLIENTS = 320
DESCRIPTORS = 256


@pytest.fixture
def many_descriptors():
    """Descriptors for the clients of a test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(4096, before[1])), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.usefixtures("many_descriptors")
def test_pages_are_shown_beside_more_half_open_connections_than_there_are_descriptors(recorded):
    code = "from buckets.cli.commands import main; main()"
    command = [sys.executable, "-c", code, "console", str(recorded), "--port", str(free_port())]
    limited = f'ulimit -n {DESCRIPTORS}; exec "$@"'
    with subprocess.Popen(
        ["sh", "-c", limited, "sh", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = next(found[0] for line in process.stdout if (found := re.search(r"http://[\w.:]+", line)))
            host, _, port = address.removeprefix("http://").partition(":")
            for _ in range(3):
                with half_open((host, int(port)), CLIENTS):
                    for path in ("/rules", "/alerts", "/lists", "/rule?id=large"):
                        assert "<h1>" in page(address + path)
        finally:
            process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert "Too many open files" not in said
    assert "Traceback" not in said


def test_a_request_has_a_time_for_all_of_it_however_slowly_it_comes(recorded, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.5)
    with serving(recorded) as served:
        place = served.console.listening.getsockname()
        body = b"POST /rule/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nform"
        after_one = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\n"
        for sent in (b"", b"GET / HTTP/1.1\r\n", body, after_one):
            with socket.create_connection(place, timeout=30) as client:
                client.sendall(sent)
                assert is_closed(client)
        with socket.create_connection(place, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            drip_until_closed(client)
        assert served.ask("/rules").status == 200


def test_an_answer_that_is_not_read_is_ended(recorded, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.5)
    with serving(recorded) as served, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(served.console.listening.getsockname())
        asked = b"GET /static/uPlot.iife.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        client.sendall(asked * 200)
        state = served.console.server_state
        unread = waited(lambda: next((each for each in tuple(state.connections) if each.flow.write_paused), None))
        assert waited(unread.transport.is_closing)
        assert served.ask("/rules").status == 200


def waited(condition: Callable[[], Any]) -> Any:
    """What a condition gives once it holds."""
    given_up_s = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < given_up_s
        time.sleep(0.01)
    return found


def test_a_form_whose_sender_goes_away_is_no_error_of_the_server(recorded, capfd):
    with serving(recorded) as served:
        place = served.console.listening.getsockname()
        with socket.create_connection(place, timeout=30) as client:
            client.sendall(b"POST /rule/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nform")
            waited(lambda: served.console.server_state.connections)
        waited(lambda: not served.console.server_state.connections)
        assert served.ask("/rules").status == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("many_descriptors")
def test_pages_are_shown_beside_more_streams_than_there_may_be_connections(recorded):
    with serving(recorded) as served, contextlib.ExitStack() as opened:
        place = served.console.listening.getsockname()
        answers = []
        for _ in range(most_connections()):
            client = opened.enter_context(socket.create_connection(place, timeout=30))
            client.sendall(b"GET /now/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answers.append(client.recv(12))
        assert served.ask("/rules").status == 200
        own = most_connections() // 4
        assert answers == [b"HTTP/1.1 200"] * own + [b"HTTP/1.1 503"] * (len(answers) - own)


@pytest.mark.usefixtures("many_descriptors")
def test_of_too_many_that_wait_the_oldest_are_ended_and_streams_are_not(recorded):
    with serving(recorded) as served:
        place = served.console.listening.getsockname()
        with socket.create_connection(place, timeout=30) as stream:
            stream.sendall(b"GET /now/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200" in stream.recv(20)
            with half_open(place, most_connections()) as clients:
                assert is_closed(clients[0])
                clients[-1].settimeout(0.2)
                assert not is_closed(clients[-1])
                while b"data:" not in stream.recv(4096):
                    pass

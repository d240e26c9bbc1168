"""Calls of `buckets serve` over HTTP, without brokers and Spark: the service itself, with timelines that are empty.

Whatever comes is refused in one line, and others who call at the same time are answered as usual.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from buckets.config.job import load_job
from buckets.engine.stages.in_memory import memory_store, memory_stores
from buckets.errors import BucketsError, ConfigurationError
from buckets.kafka.local_broker import free_port
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from buckets.serve.app import MOST_PAYMENTS, Serving, open_serving
from buckets.serve.job_batches import JobBatch
from buckets.serve.replica import Replica
from buckets.serve.service import NotNow
from tests.core.test_replica import scored_by
from tests.half_open import drip_until_closed, half_open, is_closed
from tests.spark.payments import EVENT_SCHEMA, RULES, SCHEMA

WITHIN_S = 30
ONE = json.dumps({"id": "e1", "t": 1_000, "payer": "ann", "kind": "CARD", "amount": "70.00"}).encode()
TOKEN = "a token that is long enough"


def configuration(root: Path, **changes: Any) -> Path:
    """A job whose broker does not answer."""
    (root / "rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    settings = {
        "kafka": {"bootstrap_servers": f"127.0.0.1:{free_port()}"},
        "source": {"kind": "kafka", "topic": "payments"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"kind": "kafka"},
        "engine": {"shards": 4, "allowed_lateness": "100ms"},
        "serve": {"port": free_port(), "answer_within": "20s"},
    }
    (root / "conf.yaml").write_text(yaml.safe_dump(settings | changes))
    return root / "conf.yaml"


class Calls:
    """A service that answers `mode=check` of empty timelines, and requests of it."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.place = serving.listening.getsockname()

    def ask(
        self, path: str = "/v1/score?mode=check", body: bytes | None = ONE, method: str | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], Any]:
        """Send a request; the answer must be JSON in one line."""
        connection = http.client.HTTPConnection(*self.place, timeout=WITHIN_S)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
            return read(connection.getresponse())
        finally:
            connection.close()

    def send(self, *parts: bytes, ends: bool = False) -> bytes:
        """Send bytes as they are, and return what comes until the other side ends the connection."""
        with socket.create_connection(self.place, timeout=WITHIN_S) as client:
            for part in parts:
                client.sendall(part)
            if ends:
                client.shutdown(socket.SHUT_WR)
            found = b""
            while some := client.recv(65_536):
                found += some
            return found

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Others call all the time: each gets the answer, and soon."""
        stop, slowest, wrong = threading.Event(), [0.0], []

        def call() -> None:
            while not stop.is_set():
                began_s = time.perf_counter()
                try:
                    status, _, answer = self.ask()
                    wrong.extend([answer] if status != 200 or answer["outcome"] != "evaluated" else [])
                except (OSError, http.client.HTTPException) as error:
                    wrong.append(repr(error))
                slowest[0] = max(slowest[0], time.perf_counter() - began_s)

        callers = [threading.Thread(target=call) for _ in range(2)]
        for each in callers:
            each.start()
        try:
            yield
        finally:
            stop.set()
            for each in callers:
                each.join()
        assert wrong == []
        assert slowest[0] < SLOWEST_S


SLOWEST_S = 5.0
"""So long may nobody wait, on a machine that does other things too."""


def read(response: http.client.HTTPResponse) -> tuple[int, Mapping[str, str], Any]:
    headers, body = {name.lower(): value for name, value in response.getheaders()}, response.read()
    return response.status, headers, json.loads(body) if headers["content-type"].endswith("json") else body.decode()


def empty_replica(rules: list[Mapping[str, Any]] | None = None) -> tuple[JobBatch, Any]:
    """A batch of a job that has just begun, and what it is scored by."""
    by = scored_by(first_rule_set([Rule.model_validate(each) for each in rules or RULES]), 1, schema=EVENT_SCHEMA)
    return JobBatch(0, {(0, "payments"): 0}, by), by


@contextmanager
def answering(conf: Path) -> Iterator[Calls]:
    """Serve a job of which nothing has arrived: what comes from brokers and the checkpoint is left out."""
    serving = open_serving(conf, None, None, lambda line: None)
    service, (batch, _) = serving.service, empty_replica()
    service._queue.put(Replica(memory_store(), memory_stores(), batch, service._read))
    scoring = threading.Thread(target=service._run, daemon=True)

    def stop() -> None:
        service._stopping.set()
        service._queue.put(None)
        scoring.join(WITHIN_S)

    scoring.start()
    with mock.patch.object(service, "stop", stop):
        thread = threading.Thread(target=serving.run, daemon=True)
        thread.start()
        try:
            yield Calls(serving)
        finally:
            serving.should_exit = True
            thread.join(WITHIN_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> Iterator[Calls]:
    with answering(configuration(tmp_path_factory.mktemp("serve"))) as opened:
        status, _, answer = opened.ask("/v1/score?mode=check&features=*")
        assert (status, answer["decision"]["fired"]) == (200, ["payer-sum"])
        yield opened


def refused(found: tuple[int, Mapping[str, str], Any], status: int, part: str) -> None:
    """See that a request was refused in one line."""
    assert (found[0], found[1]["content-type"]) == (status, "application/problem+json"), found
    assert part in found[2]["detail"]
    assert "\n" not in found[2]["detail"]
    assert len(found[2]["detail"]) < 300


NO_PAYMENTS = {
    "nothing": b"",
    "text": b"hello",
    "a number": b"12",
    "null": b"null",
    "half of an object": ONE[:-1],
    "two objects": ONE + ONE,
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "a deep field": b'{"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no UTF-8": b'{"id": "\xff\xfe"',
    "no payments": b"[]",
    "too many payments": b"[" + b",".join([ONE] * (MOST_PAYMENTS + 1)) + b"]",
}


@pytest.mark.parametrize("body", NO_PAYMENTS.values(), ids=NO_PAYMENTS)
def test_what_is_no_call_is_refused_in_one_line(calls, body):
    refused(calls.ask(body=body), 400, "the call")


NO_EVENTS = {
    "types": {"id": {"a": 1}, "t": [], "payer": {}, "kind": 5, "amount": "many"},
    "no fields": {},
    "nulls": {"id": None, "t": None},
    "a time of no calendar": {"id": "x", "t": 10**30, "payer": "ann"},
    "infinite": {"id": "x", "t": 1, "payer": "ann", "amount": "1e999999"},
}


@pytest.mark.parametrize("event", NO_EVENTS.values(), ids=NO_EVENTS)
def test_what_is_no_event_is_refused_with_the_reason(calls, event):
    refused(calls.ask(body=json.dumps(event).encode()), 422, "")
    status, _, several = calls.ask(body=b"[" + json.dumps(event).encode() + b"," + ONE + b"]")
    assert (status, [each["outcome"] for each in several["answers"]]) == (200, ["dead_letter", "evaluated"])


@pytest.mark.parametrize(
    "value", [b"[" * 500 + b"]" * 500, b'"' + b"\\u0000" * 1000 + b'"', b'"\\ud800"', b"1" * 5000], ids=str
)
def test_odd_values_of_fields_cost_nobody_his_answer(calls, value):
    """Also where a payment is answered, as one whose other fields are all well."""
    for name in (b"payer", b"amount", b"more", b"id", b"t"):
        status, _, answer = calls.ask(body=ONE[:-1] + b', "' + name + b'": ' + value + b"}")
        assert status in (200, 400, 422), answer
        assert status == 400 or answer["outcome"] in ("evaluated", "dead_letter")
    assert calls.ask()[0] == 200


def test_other_addresses_methods_and_parameters_are_refused_in_one_line(calls):
    refused(calls.ask("/v2/score"), 404, "/v2/score")
    refused(calls.ask("/" + "x" * 5_000), 404, "xxx")
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        refused(calls.ask("/v1/score", b"", method), 405, "POST")
    refused(calls.ask("/v1/score?mode=guess"), 400, "guess")
    refused(calls.ask("/v1/score?mode="), 400, "mode '' is not known")
    refused(calls.ask("/v1/score?check"), 400, "'check' is no parameter")
    refused(calls.ask("/v1/score?shape=round"), 400, "shape")


def test_pages_answer_without_a_call(calls):
    assert calls.ask("/healthz", None)[2] == {"status": "ok"}
    assert calls.ask("/readyz", None)[0] == 503
    described = calls.ask("/v1/openapi.json", None)[2]
    assert set(described["paths"]["/v1/score"]) == {"post"}
    assert "buckets_serve_payments_total" in calls.ask("/metrics", None)[2]


def test_a_body_that_is_too_large_is_refused_while_others_are_answered(calls):
    with calls.beside_others():
        for _ in range(5):
            with_length = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n"
            found = calls.send(with_length, b"x" * 10_000_000)
            assert found.startswith(b"HTTP/1.1 413 ")
            assert b"limit" in found.rpartition(b"\r\n\r\n")[2]


def test_a_body_without_a_length_in_pieces_is_taken_and_refused_when_it_is_too_large(calls):
    begin = b"POST /v1/score?mode=check HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (ONE[:20], ONE[20:])]
    assert b" 200 " in calls.send(begin, *pieces, b"0\r\n\r\n").split(b"\r\n")[0]
    large = b"%x\r\n%s\r\n" % (100_000, b"x" * 100_000)
    with calls.beside_others():
        assert b" 413 " in calls.send(begin, *[large] * 12, b"0\r\n\r\n").split(b"\r\n")[0]
        with pytest.raises(OSError):  # noqa: PT011 - which of the two ends first decides about the kind
            calls.send(begin, *[large] * 1_000)


def test_old_odd_and_broken_requests_are_answered_or_refused(calls):
    length = b"Content-Length: %d\r\n\r\n" % len(ONE)
    old = calls.send(b"POST /v1/score?mode=check HTTP/1.0\r\n", length, ONE)
    assert b" 200 " in old.split(b"\r\n")[0]
    without = calls.send(b"POST /v1/score?mode=check HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b" 400 " in without.split(b"\r\n")[0]
    for broken in (b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x00\x05" * 40):
        assert calls.send(broken + b"\r\n\r\n", ends=True).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))
    twice = b"POST /v1/score?mode=check HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n12345"
    assert b" 400 " in calls.send(twice, ends=True).split(b"\r\n")[0]


def test_requests_one_behind_the_other_are_answered_in_their_order(calls):
    request = b"POST /v1/score?mode=check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(ONE) + ONE
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with calls.beside_others():
        found = calls.send(request * 50 + last)
    assert found.count(b"HTTP/1.1 200 ") == 51
    assert found.endswith(b'{"status":"ok"}')


def test_who_sends_no_more_is_answered_and_who_is_gone_costs_nothing(calls):
    request = b"POST /v1/score?mode=check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(ONE)
    assert calls.send(request + ONE, ends=True).startswith((b"HTTP/1.1 200 ", b""))
    with calls.beside_others():
        for sent in (request, request + ONE[:10], request + ONE, b"POST /v1/sc"):
            for _ in range(20):
                with socket.create_connection(calls.place, timeout=WITHIN_S) as client:
                    client.sendall(sent)
    until_s = time.monotonic() + WITHIN_S
    while calls.serving.service.status()["waiting"] and time.monotonic() < until_s:
        time.sleep(0.01)  # What whoever is gone has asked may be what is scored just now
    assert calls.serving.service.status()["waiting"] == 0


def test_two_thousand_open_connections_slow_nobody(calls):
    with contextlib.ExitStack() as opened, calls.beside_others():
        clients = []
        for _ in range(125):
            clients += opened.enter_context(half_open(calls.place, 16))
            assert calls.ask()[0] == 200  # What was opened before has been accepted
        assert len(clients) == 2_000
        assert is_closed(clients[0])


def test_a_client_that_sends_a_byte_now_and_then_is_ended(calls):
    with (
        mock.patch("buckets.connections.REQUEST_WITHIN_S", 0.5),
        calls.beside_others(),
        socket.create_connection(calls.place, timeout=WITHIN_S) as client,
    ):
        client.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        drip_until_closed(client)


def test_a_caller_may_keep_its_connection_between_calls(calls):
    connection = http.client.HTTPConnection(*calls.place, timeout=WITHIN_S)
    with mock.patch("buckets.connections.REQUEST_WITHIN_S", 0.2), contextlib.closing(connection):
        for _ in range(3):
            connection.request("POST", "/v1/score?mode=check", ONE)
            kept = connection.sock
            assert read(connection.getresponse())[0] == 200
            time.sleep(0.6)
            assert connection.sock is kept
        kept.sendall(b"POST /v1/score HTTP/1.1\r\n")  # The time of a request counts from its first byte
        drip_until_closed(kept)


def test_without_its_state_a_check_says_why_and_what_is_too_much_is_refused(tmp_path):
    conf = configuration(tmp_path, serve={"port": free_port(), "answer_within": "50ms", "most_waiting": 3})
    with answering(conf) as calls:
        four = b"[" + b",".join([ONE] * 4) + b"]"
        found = calls.ask(body=four)
        refused(found, 429, "the limit is 3")
        assert found[1]["retry-after"] == "1"
        calls.serving.service._replica = None
        refused(calls.ask(), 503, "state")
        # No broker answers: the payment waits to be written, and the caller is told that nobody knows.
        status, _, answer = calls.ask("/v1/score")
        assert (status, answer["outcome"], answer["written"]) == (200, "undecided", False)
        assert answer["decision"]["undecided"] == "review"
        # Those for whom nobody waits any more leave room for others.
        assert [calls.ask("/v1/score")[0] for _ in range(4)] == [200] * 4
        assert calls.serving.service.counts == {"refused": 4, "score": 5, "undecided": 5}


def test_a_log_that_takes_nothing_does_not_keep_it_from_going_on(tmp_path):
    def full(line: str) -> None:
        raise BrokenPipeError(line)

    serving = open_serving(configuration(tmp_path), None, None, full)
    serving.listening.close()
    serving.service._is_anew = False
    serving.service._begin_anew("its state is read again", ())
    assert serving.service._needs_state.is_set()


def test_what_goes_wrong_in_the_midst_loses_neither_a_state_nor_a_question(tmp_path):
    """Of what is done together, something fails, as where messages are gone that would have to be read."""
    serving = open_serving(configuration(tmp_path), None, None, lambda line: None)
    serving.listening.close()
    service = serving.service

    def do_together(*things: Any) -> None:
        for each in things:
            service._queue.put(each)
        with mock.patch.object(service._stopping, "is_set", side_effect=[False, True]):
            service._run()

    async def ask_in_the_midst(thing: Any) -> list[Any]:
        calls = service.check([ONE], features=False)
        do_together(thing)
        await asyncio.wait([call.future for call in calls])
        return calls

    batch, _ = empty_replica()
    loaded = [Replica(memory_store(), memory_stores(), batch, service._read) for _ in range(2)]
    do_together(loaded[0])
    assert not service._needs_state.is_set()
    (asked,) = asyncio.run(ask_in_the_midst((service._reading, None)))
    assert asked.future.result().outcome == "evaluated"  # By what is there until the state is read
    assert service.status()["waiting"] == 0
    assert service._needs_state.is_set()
    service._needs_state.clear()
    do_together((service._reading, None), loaded[1])
    assert service._replica is loaded[1]
    (asked,) = asyncio.run(ask_in_the_midst((service._reading, [("no message",)])))
    assert isinstance(asked.future.exception(), NotNow)
    assert service.status()["waiting"] == 0
    assert service._replica is None  # What is half written must not be answered by
    assert service._needs_state.is_set()


def test_who_has_no_token_is_refused(tmp_path):
    with answering(configuration(tmp_path, serve={"port": free_port(), "token": TOKEN})) as calls:
        others = ("Bearer another", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", "Bearer", "é")
        for given in ({}, *({"Authorization": each} for each in others)):
            refused(calls.ask(**given), 401, "Bearer")
            assert calls.ask("/metrics", None, **given)[0] == 401
        for scheme in ("Bearer", "bearer"):
            assert calls.ask(Authorization=f"{scheme} {TOKEN}")[0] == 200
        assert calls.ask("/healthz", None)[0] == 200


REFUSED = {
    "a pattern": {"source": {"kind": "kafka", "topic_pattern": "payments-.*"}},
    "files": {"source": {"kind": "json", "path": "payments"}},
    "open to others": {"serve": {"host": "0.0.0.0"}},
    "another topic": {"serve": {"topic": "others"}},
    "half a certificate": {"serve": {"certificate_file": "here.pem"}},
    "callers without HTTPS": {"serve": {"ca_file": "here.pem"}},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_configuration_that_cannot_be_served_is_refused(tmp_path, as_worded, changes):
    conf = configuration(tmp_path, **changes)
    with pytest.raises(ConfigurationError, check=as_worded):
        open_serving(conf, None, None, lambda line: None)


def test_an_address_that_is_open_to_others_needs_a_token(tmp_path, as_worded):
    with pytest.raises(ConfigurationError, check=as_worded):
        open_serving(configuration(tmp_path), "0.0.0.0", None, lambda line: None)


def test_a_port_that_is_taken_is_refused(tmp_path):
    conf = configuration(tmp_path)
    taken = ("127.0.0.1", load_job(conf).settings.serve.port)
    with socket.create_server(taken), pytest.raises(BucketsError, match="serve: cannot listen on"):
        open_serving(conf, None, None, lambda line: None)

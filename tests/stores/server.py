"""An object store for tests: versitygw, which speaks S3 over a folder, and a server before it that does harm."""

import contextlib
import http.client
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from buckets.kafka.local_broker import free_port
from deploy.go_program import built
from tests.answering import wait_for_answer

MODULE, VERSION = "github.com/versity/versitygw", "v1.8.0"
KEYS = {"AWS_ACCESS_KEY_ID": "tests-access", "AWS_SECRET_ACCESS_KEY": "tests-secret", "AWS_REGION": "us-east-1"}

_OF_CONNECTION = ("connection", "transfer-encoding", "content-length", "expect", "keep-alive", "date", "server")


@dataclass(frozen=True)
class Store:
    """A server, and the folder of its buckets."""

    url: str
    folder: Path
    process: int | None = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold the server where it is: it takes connections, and answers nothing."""
        assert self.process is not None
        os.kill(self.process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process, signal.SIGCONT)

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells programs of it."""
        return KEYS | {"AWS_ENDPOINT_URL": self.url}

    def bucket(self, name: str) -> str:
        """Make a bucket, and return its address."""
        (self.folder / name).mkdir()
        return f"s3://{name}"


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[Store]:
    """A store over a folder, until the end of the block; the file `log` beside its buckets has a line a request."""
    program = built(MODULE, VERSION, "cmd/versitygw")
    if program is None:
        pytest.skip("there is no Go here that builds versitygw, an object store")
    port, buckets = free_port(), folder / "buckets"
    buckets.mkdir(parents=True)
    command = [program, "--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret", KEYS["AWS_SECRET_ACCESS_KEY"]]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--port", f"127.0.0.1:{port}", "posix", buckets], stdout=log, stderr=log)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}", folder / "log")
        yield Store(f"http://127.0.0.1:{port}", buckets, process.pid)
    finally:
        process.kill()
        process.wait()


@dataclass
class Harm:
    """What is done to requests: each kind to such a share of them."""

    refused: float = 0.0
    """Answered with 503, undone."""
    lost: float = 0.0
    """Done, and the connection closed before an answer."""
    cut: float = 0.0
    """Answered with half of what was to be read."""
    slow_s: float = 0.0
    """How long each one waits at most."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1


@contextlib.contextmanager
def harmful(store: Store, harm: Harm) -> Iterator[Store]:
    """A server that hands requests to a store, and does harm to some."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = self._chunks()
            time.sleep(harm.chance.random() * harm.slow_s)
            if harm.chance.random() < harm.refused:
                harm.count("refused")
                self._answer(503, {}, b"")
                return
            server = http.client.HTTPConnection(store.url.removeprefix("http://"), timeout=60)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION}
            server.request(self.command, self.path, body, kept | {"Content-Length": str(len(body))})
            answer = server.getresponse()
            data = answer.read()
            server.close()
            if harm.chance.random() < harm.lost:
                harm.count("lost")
                self.close_connection = True
                return
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_CONNECTION}
            if self.command == "GET" and data and harm.chance.random() < harm.cut:
                harm.count("cut")
                self._answer(answer.status, headers, data, data[: len(data) // 2])
                self.close_connection = True
                return
            if self.command == "HEAD":
                headers["Content-Length"] = answer.getheader("Content-Length") or "0"
            self._answer(answer.status, headers, data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do

        def _answer(self, status: int, headers: Mapping[str, str], data: bytes, sent: bytes | None = None) -> None:
            self.send_response(status)
            length = headers.get("Content-Length", str(len(data))) if self.command == "HEAD" else str(len(data))
            for name, value in {**headers, "Content-Length": length}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data if sent is None else sent)

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Store(f"http://127.0.0.1:{server.server_port}", store.folder)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def in_environment(store: Store) -> Iterator[None]:
    """Let this process reach a store."""
    before = dict(os.environ)
    os.environ.update(store.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

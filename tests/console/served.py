"""A console that serves, in a thread of the test."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from buckets.console.app import Console, open_console

ENDS_WITHIN_S = 60


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Served:
    """A console, and requests of it without a browser."""

    def __init__(self, console: Console) -> None:
        self.console, self.url, self.cookie = console, console.address, ""
        self.mark = ""

    def ask(self, path: str, form: dict | None = None, **headers: str) -> Answer:
        """Ask for a page, or send a form; cookies are kept as a browser does."""
        host, port = self.console.listening.getsockname()
        connection = http.client.HTTPConnection(host, port, timeout=30)
        given = {"Cookie": self.cookie} | {name.replace("_", "-"): value for name, value in headers.items()}
        if form is None:
            connection.request("GET", path, headers=given)
        else:
            body = urlencode({"form_mark": self.mark} | form, doseq=True)
            connection.request("POST", path, body, given | {"Content-Type": "application/x-www-form-urlencoded"})
        response = connection.getresponse()
        text = response.read().decode()
        found = {name.lower(): value for name, value in response.getheaders()}
        connection.close()
        self.cookie = found.get("set-cookie", self.cookie).partition(";")[0]
        if 'name="form_mark" value="' in text:
            self.mark = text.partition('name="form_mark" value="')[2].partition('"')[0]
        return Answer(response.status, found, text)


@contextmanager
def serving(conf: Path, login_name: str = "ann", is_read_only: bool = False) -> Iterator[Served]:
    """Serve a console of a job, on a port that is free."""
    console = open_console(conf, login_name, port=0, is_read_only=is_read_only)
    thread = threading.Thread(target=console.run, daemon=True)
    thread.start()
    try:
        yield Served(console)
    finally:
        console.should_exit = True
        thread.join(ENDS_WITHIN_S)
        assert not thread.is_alive(), "the console does not end"

"""Clients that begin requests and do not end them, all at once."""

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

BEGINNINGS = (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-More: ")
"""What one has sent: nothing, or headers without an end."""


@contextmanager
def half_open(place: tuple[str, int], number: int) -> Iterator[list[socket.socket]]:
    """Open connections, each with the beginning of a request."""
    with ExitStack() as opened:
        clients = []
        for at in range(number):
            client = opened.enter_context(socket.create_connection(place, timeout=30))
            client.sendall(BEGINNINGS[at % len(BEGINNINGS)])
            clients.append(client)
        yield clients


def is_closed(client: socket.socket) -> bool:
    """Wait until the other side ends a connection; False if it does not."""
    try:
        while client.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def drip_until_closed(client: socket.socket) -> None:
    """Send a byte now and then, until the other side ends the connection."""
    given_up_s = time.monotonic() + 30
    client.settimeout(0.05)
    while time.monotonic() < given_up_s:
        try:
            if not client.recv(1):
                return
        except TimeoutError:
            with contextlib.suppress(OSError):  # recv says so next
                client.sendall(b"x")
        except OSError:
            return
    message = "the connection goes on"
    raise AssertionError(message)

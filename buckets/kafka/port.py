"""Ports of this machine: which are free, and why one is not."""

import socket

from buckets.errors import BucketsError

HOST = "127.0.0.1"
"""Where a local broker listens: on this machine only."""


def check_port(port: int) -> None:
    """See that somebody can listen at a port.

    Raises:
        BucketsError: nobody can; says why.
    """
    reason = why_taken(port)
    if reason is not None:
        message = f"port {port} of {HOST} cannot be used ({reason}); stop who has it, or choose another with --port"
        raise BucketsError(message)


def why_taken(port: int) -> str | None:
    """Return why nobody can listen at a port now; None if somebody can."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_port() -> int:
    """Return a port where nobody listens now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port

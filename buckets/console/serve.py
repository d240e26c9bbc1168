"""Serves a console until it is interrupted."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from buckets.config.console import ConsoleSettings
from buckets.config.job import load_job
from buckets.console.app import application
from buckets.console.person import People
from buckets.console.sampler import Sampler
from buckets.console.site import Site
from buckets.console.work.questions import Questions
from buckets.errors import BucketsError

_END_WITHIN_S = 2
_QUEUE = 128


def serve(
    conf: Path, login_name: str, say: Callable[[str], None], host: str | None, port: int | None, is_read_only: bool
) -> None:
    """Serve a console until somebody interrupts it.

    Args:
        conf: the job's configuration.
        login_name: who starts it.
        say: prints where it is.
        host: the address to listen on; None for that of the configuration.
        port: the port likewise.
        is_read_only: whether nobody may change anything.

    Raises:
        BucketsError: the configuration is not valid, or the address cannot be listened on.
    """
    job = load_job(conf)
    settings = job.settings.console
    if host is not None:
        settings = _with_host(settings, host)
    listening = listen(settings.host, port or settings.port)
    at = listening.getsockname()[1]
    people = People(settings, settings.host, at, login_name, is_read_only)
    questions = Questions()
    site = Site(conf, job, people, Sampler(job.checkpoint), questions)
    server = uvicorn.Server(
        uvicorn.Config(
            application(site),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_END_WITHIN_S,
            proxy_headers=False,
        )
    )
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"the console of {conf} is at http://{name}:{at}; Ctrl-C ends it")
    with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        BucketsError: there is no such address here, or it is in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_QUEUE)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        remedy = "end what uses it, or name another port with --port"
        message = f"console: cannot listen on {host}, port {port} ({error.strerror}); {remedy}"
        raise BucketsError(message) from None
    return listening


def _with_host(settings: ConsoleSettings, host: str) -> ConsoleSettings:
    """Return settings with another address, for which they must fit too.

    Raises:
        BucketsError: it can be reached from elsewhere, and there is no token.
    """
    try:
        return ConsoleSettings.model_validate({**dict(settings), "host": host})
    except ValueError:
        message = f"--host {host}: can be reached from elsewhere, and nothing says who may come in; add `console.token`"
        raise BucketsError(message) from None

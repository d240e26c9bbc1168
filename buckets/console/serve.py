"""A console that listens on an address, and serves its pages until it is interrupted."""

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from buckets.config.console import ConsoleSettings
from buckets.config.job import load_job
from buckets.console.app import application
from buckets.console.connections import ACCEPTED_AT_ONCE, Connection
from buckets.console.person import People
from buckets.console.sampler import Sampler
from buckets.console.site import Site
from buckets.errors import BucketsError
from buckets.questions.long_questions import Questions
from buckets.questions.rule_checks import RuleChecks

_END_WITHIN_S = 5
_QUEUE = 1_024
"""So many connections wait at most to be accepted."""


@dataclass(frozen=True)
class Console:
    """A console that listens, and serves when it is run."""

    site: Site
    listening: socket.socket
    server: uvicorn.Server

    @property
    def address(self) -> str:
        """Where it is reached."""
        host, port = self.listening.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Serve until somebody interrupts it."""
        with contextlib.closing(self.listening), contextlib.suppress(KeyboardInterrupt):
            self.server.run(sockets=[self.listening])


def open_console(
    conf: Path, login_name: str, host: str | None = None, port: int | None = None, is_read_only: bool = False
) -> Console:
    """Open a console.

    Args:
        conf: the job's configuration.
        login_name: who opens it.
        host: the address to listen on; None for that of the configuration.
        port: the port likewise; 0 for any that is free.
        is_read_only: whether nobody may change anything.

    Raises:
        BucketsError: the configuration is not valid, or the address cannot be listened on.
    """
    job = load_job(conf)
    settings = job.settings.console
    if host is not None:
        settings = _with_host(settings, host)
    listening = listen(settings.host, settings.port if port is None else port)
    people = People(settings, settings.host, listening.getsockname()[1], login_name, is_read_only)
    site = Site(conf, job, people, Sampler(job.checkpoint), Questions(), RuleChecks(is_replaced=True))
    config = uvicorn.Config(
        application(site),
        http=Connection,
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_END_WITHIN_S,
        proxy_headers=False,
    )
    return Console(site, listening, _Server(config, site))


class _Server(uvicorn.Server):
    """A server whose streams end with it."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        """Serve a console."""
        super().__init__(config)
        self._site = site

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue, from which few are taken at once."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and checks first, then wait for the other answers."""
        self._site.closing.set()
        self._site.checks.close()
        await super().shutdown(sockets)


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
            listening.listen(ACCEPTED_AT_ONCE)
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

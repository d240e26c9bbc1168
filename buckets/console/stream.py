"""Streams of changes to a page: one a page, closed when its tab is."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from buckets.console.connections import most_connections
from buckets.console.site import Site
from buckets.console.view import Asked
from buckets.errors import BucketsError

EVERY_S = 1.0
_KEPT_ALIVE_S = 15.0
_OF_CONNECTIONS: Final = 2
"""Of this many connections one may be a stream, so that pages are shown however many stay open."""
_OF_STREAMS: Final = 2
"""Of this many streams one may be of the same person."""


class PageChange(NamedTuple):
    """A message to a page: a part that replaces what is there, or an event with data."""

    part: str = ""
    event: str = ""
    data: Any = None


Changes = Callable[[Asked], Iterator[list[PageChange]]]
"""Gives what has changed each time it is asked; it is asked once in a while, as long as the page is open."""


def stream(site: Site, changes: Changes) -> Callable[[Request], Any]:
    """Return what answers requests with a stream."""

    async def endpoint(request: Request) -> Response:
        person = request.state.person
        streams, own = site.activity.streams(person.name)
        most = most_connections() // _OF_CONNECTIONS
        if streams >= most or own >= most // _OF_STREAMS:
            line = "so many pages are open that this one does not follow what happens; load it again to see it"
            return Response(f"{line}\n", 503, media_type="text/plain; charset=utf-8")
        asked = Asked(site, person, request.query_params)
        return _Stream(_messages(changes(asked), site), site, person.name)

    return endpoint


class _Stream(StreamingResponse):
    """A stream, which is counted before any other one can ask how many there are."""

    def __init__(self, messages: AsyncIterator[str], site: Site, person: str) -> None:
        """Stream messages to a person."""
        super().__init__(messages, media_type="text/event-stream")
        self._site, self._person = site, person

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages until the stream ends."""
        with self._site.activity.streaming(self._person):
            await super().__call__(scope, receive, send)


async def _messages(changes: Iterator[list[PageChange]], site: Site) -> AsyncIterator[str]:
    yield ": begins\n\n"
    async for message in _news(changes, site.closing):
        yield message


async def _news(changes: Iterator[list[PageChange]], closing: threading.Event) -> AsyncIterator[str]:
    quiet_s = 0.0
    while not closing.is_set():
        try:
            news = await run_in_threadpool(next, changes, None)
        except BucketsError as error:
            news = [PageChange(event="fault", data=error.message)]
        if news is None:
            return
        quiet_s = 0.0 if news else quiet_s + EVERY_S
        if quiet_s >= _KEPT_ALIVE_S:
            quiet_s = 0.0
            yield ": nothing new\n\n"
        for change in news:
            yield _message(change)
        await asyncio.sleep(EVERY_S)


def _message(change: PageChange) -> str:
    """Return a change as a server-sent event."""
    if change.event:
        return f"event: {change.event}\ndata: {json.dumps(change.data)}\n\n"
    return "".join(f"data: {line}\n" for line in change.part.splitlines()) + "\n"

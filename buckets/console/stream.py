"""Streams of changes to a page: one a page, closed when its tab is."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from buckets.console.site import Site
from buckets.console.view import Asked
from buckets.errors import BucketsError

EVERY_S = 1.0
_KEPT_ALIVE_S = 15.0


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
        asked = Asked(site, request.state.person, request.query_params)
        return StreamingResponse(_messages(changes(asked), site), media_type="text/event-stream")

    return endpoint


async def _messages(changes: Iterator[list[PageChange]], site: Site) -> AsyncIterator[str]:
    with site.activity.streaming():
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

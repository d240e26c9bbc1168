"""Renders pages from templates: the context of every page, error pages, and streams of changes."""

import asyncio
import hashlib
import json
import re
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from buckets.changes.origin import JobRules
from buckets.clock import epoch_ms
from buckets.connections import most_connections
from buckets.console.person import People, Person
from buckets.duration import spoken_duration
from buckets.errors import BucketsError
from buckets.moment import exact_time_text, iso_text, time_text
from buckets.monitor.live import read_live
from buckets.monitor.pace import LiveSample, recorded_hour, sample_of
from buckets.monitor.query_news import Histogram
from buckets.monitor.words import quantiles_text, schema_news
from buckets.numbers.fixed_point import readable, short_percent_text
from buckets.pages.page import round_times, templates
from buckets.printable import capitalised, counted, key_words, one_line
from buckets.questions.listed_alerts import AskedJob
from buckets.questions.long_questions import Questions
from buckets.questions.rule_checks import RuleChecks
from buckets.resources import built_site

_SAMPLE_EVERY_S = 1.0
_KEPT = 3600


class Sampler:
    """Takes a sample each second until closed."""

    def __init__(self, checkpoint: Path) -> None:
        """Watch the status of a checkpoint's job; the job itself is not affected."""
        self._checkpoint = checkpoint
        self._samples: deque[LiveSample] = deque(maxlen=_KEPT)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples of the job", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def since(self, time_s: int = 0) -> list[LiveSample]:
        """Return the samples after a time, in s, oldest first."""
        return [sample for sample in tuple(self._samples) if sample.time_s > time_s]

    def _run(self) -> None:
        while not self._closing.wait(_SAMPLE_EVERY_S):
            try:
                live = read_live(self._checkpoint)
            except BucketsError:  # pages report it
                continue
            if live is None:
                continue
            if not self._samples:
                self._samples.extend(recorded_hour(live.data))
            now_ms = epoch_ms()
            if live.state(now_ms) == "running":
                sample = sample_of(live.data["minute"], live.data["lag"], now_ms)
                if not self._samples or sample.time_s > self._samples[-1].time_s:
                    self._samples.append(sample)


_BOUNDS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Activity:
    """Counts requests and streams since the start; thread-safe."""

    def __init__(self) -> None:
        self._started_ms = epoch_ms()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._streams: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, page: str, code: int, seconds: float) -> None:
        """Count a request of a page, with the status of its response and its duration in s."""
        with self._lock:
            self._requests[page, code] += 1
            self._seconds.setdefault(page, Histogram(_BOUNDS_S)).add([(seconds, 1)])

    @contextmanager
    def streaming(self, person: str) -> Iterator[None]:
        """Count a stream of a person while it is open."""
        with self._lock:
            self._streams[person] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams -= Counter([person])  # drops people with a count of zero

    def streams(self, person: str) -> tuple[int, int]:
        """Return the numbers of all open streams, and of those of a person."""
        with self._lock:
            return self._streams.total(), self._streams[person]

    def status(self) -> dict[str, Any]:
        """Return all counts, for metrics."""
        with self._lock:
            return {
                "started_ms": self._started_ms,
                "requests": dict(self._requests),
                "seconds": {page: counted.to_json() for page, counted in self._seconds.items()},
                "streams": self._streams.total(),
            }


_NEW_FILE = "console.yaml"


@dataclass
class Site(AskedJob):
    """A console.

    Attributes:
        conf: the configuration of its job.
        latest: its contents.
        people: the users and their roles.
        sampler: what the job has done in the last hour.
        questions: the queue of long questions.
        checks: checks of rules as they are typed.
        activity: counts of requests and streams.
        closing: set when the console ends, so that streams do.
    """

    people: People
    sampler: Sampler
    questions: Questions
    checks: RuleChecks
    activity: Activity = field(default_factory=Activity)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The name of the job: its configuration, or the folder if that says more."""
        path = self.conf.resolve()
        return path.parent.name if path.stem in ("conf", "config", "job") else path.stem

    def rules(self, new_file: str = _NEW_FILE) -> JobRules:
        """Return the rules at their origin, as they are now; in a folder, new ones go into a file."""
        return super().rules(new_file)


PAGES = (
    ("now", "/", "Now"),
    ("alerts", "/alerts", "Alerts"),
    ("rules", "/rules", "Rules"),
    ("keys", "/key", "Keys"),
    ("lists", "/lists", "Lists"),
    ("verdicts", "/verdicts", "Verdicts"),
    ("quality", "/quality", "Quality"),
    ("batches", "/batches", "Batches"),
)
"""The pages of the navigation: name, address and title."""


_OWN = re.compile(r"/(?:[\w-]+(?:/[\w-]+)*)?(?:\?[!-~]*)?", re.ASCII)
"""The path of a page; after two slashes or a backslash, browsers expect a host."""


@dataclass(frozen=True)
class Asked:
    """A request for a page: its user, and the fields of its URL or form."""

    site: Site
    person: Person
    query: Mapping[str, str]
    form: Mapping[str, list[str]] = field(default_factory=dict)

    def given(self, name: str) -> str:
        """Return a field of the form without surrounding blanks; empty if missing."""
        return next(iter(self.form.get(name, ())), "").strip()

    def named(self, name: str) -> str:
        """Return a field of the URL; empty if missing."""
        return self.query.get(name, "").strip()


class View:
    """The content of a page: its template and values."""

    def __init__(self, template: str, /, status: int = 200, **values: Any) -> None:
        self.template, self.status, self.values = template, status, values


@dataclass(frozen=True)
class Onward:
    """A redirect to another page, with a line about what has been done."""

    address: str
    done: str = ""

    def address_with_done(self) -> str:
        """Return the URL, with the line as a field."""
        joined = "&" if "?" in self.address else "?"
        return f"{self.address}{joined}{urlencode({'done': self.done})}" if self.done else self.address


def own_address(text: str, otherwise: str = "/") -> str:
    """Return a URL from outside if it is a page of the console, else another one."""
    return text if _OWN.fullmatch(text) else otherwise


def seen_mark(text: str) -> str:
    """Return a hash of a text, by which a page recognises that it has changed since it was shown."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def address(path: str, **fields: Any) -> str:
    """Return the URL of a page with fields, without empty ones."""
    query = urlencode({name: value for name, value in fields.items() if value not in (None, "")})
    return f"{path}?{query}" if query else path


def shown(request: Request, site: Site, view: View, page: str = "") -> Response:
    """Return a view as a response."""
    person: Person | None = getattr(request.state, "person", None)
    values: dict[str, Any] = {
        "site": site,
        "job": _job_words(site),
        "pages": PAGES,
        "has_documents": built_site() is not None,
        "page": page,
        "person": person,
        "may": person.may if person is not None else lambda role: False,
        "form_mark": request.state.form_mark,
        "done": request.query_params.get("done", ""),
        "here": own_address(request.url.path),
    }
    return HTMLResponse(_templates().get_template(view.template).render(**values | view.values), view.status)


def shown_error(request: Request, site: Site, error: BucketsError, page: str = "", status: int = 400) -> Response:
    """Return an error page with one line; for a part of a page, such a part."""
    is_part = request.headers.get("hx-request") == "true"
    line = capitalised(error.message.removeprefix("--"))
    template = "part-error.html" if is_part else "error.html"
    return shown(request, site, View(template, 200 if is_part else status, error=line), page)


def part(template: str, **values: Any) -> str:
    """Return a part of a page, as streams send it."""
    text: str = _templates().get_template(template).render(**values)
    return text


def _job_words(site: Site) -> dict[str, str]:
    try:
        live, now_ms = read_live(site.job.checkpoint), epoch_ms()
    except BucketsError as error:
        return {"state": "unknown", "words": error.message}
    if live is None:
        return {"state": "idle", "words": "not running"}
    state = live.state(now_ms)
    batch = live.data["last_batch"]
    at = f"batch {batch['batch_id']:,} · rules v{batch['ruleset_version']}" if batch else ""
    schema = schema_news(live.data)
    of_events = f"schema v{schema['version']}" if batch and schema else ""
    words = {"running": "live", "stopped": "stopped", "silent": "not responding", "gone": "died"}[state]
    return {"state": state, "words": " · ".join(part for part in (words, at, of_events) if part)}


def _templates() -> Any:
    """Return the templates of the console, which escape invisible characters in texts."""
    found = templates("console/templates")
    if "time" not in found.filters:
        found.filters |= {
            "counted": counted,
            "percent": short_percent_text,
            "quantiles": quantiles_text,
            "spoken": spoken_duration,
            "time": time_text,
            "exact_time": exact_time_text,
            "readable": readable,
            "key_words": key_words,
            "one_line": one_line,
            "number": lambda value: "" if value is None else f"{value:,}",
            "as_is": Markup.escape,
            "iso": iso_text,
        }
        found.globals |= {
            "address": lambda path, **fields: Markup.escape(address(path, **fields)),
            "round_times": round_times,
        }
    return found


EVERY_S = 1.0
_KEPT_ALIVE_S = 15.0
_OF_CONNECTIONS: Final = 2
"""One of this many connections may be a stream, so that pages load however many stay open."""
_OF_STREAMS: Final = 2  # One of this many streams may belong to the same person


class PageChange(NamedTuple):
    """A message to a page: a replacement for one of its parts, or an event with data."""

    part: str = ""
    event: str = ""
    data: Any = None


Changes = Callable[[Asked], Iterator[list[PageChange]]]
"""Yields changes when asked, now and then while the page is open."""


def stream(site: Site, changes: Changes) -> Callable[[Request], Any]:
    """Return an endpoint that answers requests with a stream."""

    async def endpoint(request: Request) -> Response:
        person = request.state.person
        streams, own = site.activity.streams(person.name)
        most = most_connections() // _OF_CONNECTIONS
        if streams >= most or own >= most // _OF_STREAMS:
            line = "so many pages are open that this one does not follow what happens; load it again to see it"
            return PlainTextResponse(f"{line}\n", 503)
        asked = Asked(site, person, request.query_params)
        return _Stream(_messages(changes(asked), site), site, person.name)

    return endpoint


class _Stream(StreamingResponse):
    """A stream that is counted before any other can check the limit."""

    def __init__(self, messages: AsyncIterator[str], site: Site, person: str) -> None:
        super().__init__(messages, media_type="text/event-stream")
        self._site, self._person = site, person

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._site.activity.streaming(self._person):
            await super().__call__(scope, receive, send)


async def _messages(changes: Iterator[list[PageChange]], site: Site) -> AsyncIterator[str]:
    quiet_s = 0.0
    yield ": begins\n\n"
    while not site.closing.is_set():
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
            if change.event:
                yield f"event: {change.event}\ndata: {json.dumps(change.data)}\n\n"
            else:
                yield "".join(f"data: {line}\n" for line in change.part.splitlines()) + "\n"
        await asyncio.sleep(EVERY_S)

"""Pages from templates: what all of them are given, and how what goes wrong is shown."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from buckets.clock import epoch_ms
from buckets.console.person import Person
from buckets.console.site import Site
from buckets.errors import BucketsError
from buckets.moment import exact_time_text, iso_text, time_text
from buckets.monitor.live import read_live
from buckets.monitor.words import schema_news
from buckets.numbers.figures import readable
from buckets.pages.page import templates
from buckets.printable import capitalised, key_words, one_line
from buckets.resources import built_site

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
"""The address of a page; behind two slashes or a backslash, browsers look for a host."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a page: by whom, and with which fields of its address or form."""

    site: Site
    person: Person
    query: Mapping[str, str]
    form: Mapping[str, list[str]] = field(default_factory=dict)

    def given(self, name: str) -> str:
        """Return a field of the form without blanks around it; empty where it is left out."""
        return next(iter(self.form.get(name, ())), "").strip()

    def named(self, name: str) -> str:
        """Return a field of the address; empty where it is left out."""
        return self.query.get(name, "").strip()


@dataclass(frozen=True)
class View:
    """What a page shows: its template, with values for it; or only where to go on."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Onward:
    """Another page that is shown next, with a line of what has been done."""

    address: str
    done: str = ""


def own_address(text: str, otherwise: str = "/") -> str:
    """Return an address that somebody else has written, if it is a page of the console; another one if it is not."""
    return text if _OWN.fullmatch(text) else otherwise


def seen_mark(text: str) -> str:
    """Return what says whether something is still what somebody has seen: a hash of it as text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def address(path: str, **fields: Any) -> str:
    """Return the address of a page with fields; those that are empty are left out."""
    query = urlencode({name: value for name, value in fields.items() if value not in (None, "")})
    return f"{path}?{query}" if query else path


def shown(request: Request, site: Site, view: View, page: str = "") -> Response:
    """Return a view as an answer."""
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
    return HTMLResponse(_templates().get_template(view.template).render(**values | dict(view.values)), view.status)


def shown_error(request: Request, site: Site, error: BucketsError, page: str = "", status: int = 400) -> Response:
    """Return what went wrong, in one line; to a part of a page as such a part."""
    is_part = request.headers.get("hx-request") == "true"
    line = capitalised(error.message.removeprefix("--"))
    template = "part-error.html" if is_part else "error.html"
    return shown(request, site, View(template, {"error": line}, 200 if is_part else status), page)


def part(template: str, **values: Any) -> str:
    """Return a part of a page, as streams send it."""
    text: str = _templates().get_template(template).render(**values)
    return text


def _job_words(site: Site) -> dict[str, str]:
    """Return whether the job runs, in a word or two, for the top of each page."""
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
    words = {"running": "live", "stopped": "stopped", "silent": "silent", "gone": "gone"}[state]
    return {"state": state, "words": " · ".join(part for part in (words, at, of_events) if part)}


def _templates() -> Any:
    """Return the templates of the console; text in them has its invisible characters escaped."""
    found = templates("console/templates")
    if "time" not in found.filters:
        found.filters |= {
            "time": time_text,
            "exact_time": exact_time_text,
            "readable": readable,
            "key_words": key_words,
            "one_line": one_line,
            "number": lambda value: "" if value is None else f"{value:,}",
            "as_is": Markup.escape,
            "iso": iso_text,
        }
        found.globals["address"] = _shown_address
    return found


def _shown_address(path: str, **fields: Any) -> Markup:
    return Markup.escape(address(path, **fields))

"""The documentation under `/docs`, where it was built."""

import base64
import hashlib
import re
from pathlib import Path

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from buckets.resources import built_site

DOCUMENTS = "/docs"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def documents() -> BaseRoute:
    """Return what answers below `/docs`: the site, or a line on how to get it."""
    folder = built_site()
    if folder is None:
        return Route(DOCUMENTS + "/{page:path}", _not_built)
    return Mount(DOCUMENTS, _Pages(folder))


class _Pages(StaticFiles):
    """The site; of the scripts in its pages, those run that were there when the console started.

    Its search writes styles into the page.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)
        scripts = {script for page in folder.rglob("*.html") for script in _INLINE.findall(page.read_bytes())}
        self._policy = _POLICY.format(scripts=" ".join(sorted(map(_source, scripts))))

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file."""
        response = await super().get_response(path, scope)
        response.headers["content-security-policy"] = self._policy
        return response


def _source(script: bytes) -> str:
    """Return how a policy names a script that stands in a page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


async def _not_built(_: object) -> Response:
    line = "the documentation is not here: `make docs` builds it in a checkout, and a wheel has it\n"
    return Response(line, 404, media_type="text/plain; charset=utf-8")

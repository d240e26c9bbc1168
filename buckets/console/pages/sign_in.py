"""The page on which people say who they are, where the console asks for a token."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from buckets.console.view import Site, View, shown


def endpoint(site: Site) -> Callable[[Request], Response]:
    """Return what answers requests for the page."""

    def answer(request: Request) -> Response:
        if site.people.settings.token is None or site.people.settings.trusted_user_header is not None:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return shown(request, site, View("sign-in.html", {"error": ""}))
        fields = {name: values[0].strip() for name, values in request.state.form.items()}
        error = ""
        if not fields.get("name"):
            error = "Say who you are; changes carry your name."
        elif not site.people.is_token(fields.get("token", "")):
            error = "This is not the token; it is in the job's configuration, as console.token."
        if error:
            return shown(request, site, View("sign-in.html", {"error": error}, 403))
        request.state.session = site.people.signed_in(fields["name"])
        return RedirectResponse("/", 303)

    return answer

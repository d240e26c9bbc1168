"""Templates into pages: self-contained HTML, in which every value is escaped."""

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from buckets.clock import epoch_ms
from buckets.moment import time_text
from buckets.printable import visible
from buckets.version import versions_text


def render(template: str, **values: Any) -> str:
    """Return a page of a template in this package, which says below when it was made and by which versions.

    Each value is escaped where it is shown; one that the template names and that is not given is an error.
    """
    made = {"made_at": time_text(epoch_ms()), "made_by": versions_text()}
    return templates().get_template(template).render(**values, **made)


@cache
def templates(*folders: str) -> Environment:
    """Return what reads the templates of this package and of other folders, or a text, and how values are put in."""
    loader = ChoiceLoader([PackageLoader("buckets", folder) for folder in (*folders, "pages")])
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )


def _shown(value: Any) -> Any:
    """Return a value that is put into a page, a text without invisible characters.

    A method is none, as that of a dict is in place of its entry `keys`.
    """
    if callable(value) and not isinstance(value, Undefined | Markup):
        message = f"a page shows {value!r}, which is no text and no number"
        raise TypeError(message)
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

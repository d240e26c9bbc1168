"""Templates into pages: self-contained HTML, in which every value is escaped."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: Any) -> str:
    """A page.

    Args:
        template: the name of a template in this package.
        values: what the template names; each is escaped where it is shown; one that is not given is an error.
    """
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    loader = PackageLoader("buckets", "pages")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)

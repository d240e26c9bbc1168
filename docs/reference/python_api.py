"""The page of the Python API: a place for each public name, which the site's builder fills from its docstring."""

import buckets

_INTRO = """\
# Python

What a Python program needs to evaluate events without Spark, and to read what a job has written. Everything here is
imported from `buckets`: `import buckets`, then `buckets.evaluate(...)`. The [second
tutorial](../tutorials/your-own-file.md) has an example, and so has `help(buckets)`.

"""


def page() -> str:
    """Return the page."""
    return _INTRO + "".join(f"::: {_origin(name)}\n\n" for name in buckets.__all__)


def _origin(name: str) -> str:
    return f"{getattr(buckets, name).__module__}.{name}"

"""The page of the Python API: a place for each public name, which the site's builder fills from its docstring."""

import inspect
from types import ModuleType

from pydantic import BaseModel

import buckets
import buckets.spark

_INTRO = """\
# Python

What a Python program needs to evaluate events without Spark, and to read what a job has written. Everything here is
imported from `buckets`: `import buckets`, then `buckets.evaluate(...)`. The
[second tutorial](../tutorials/your-own-file.md) has an example, and so has `help(buckets)`.

`Rule`, `EventSchema` and `EngineSettings` have the fields that files have: [Rules](rules.md),
[Event schema](event-schema.md) and [Configuration](configuration.md#enginesettings). They are made of a mapping, as in
`buckets.Rule.model_validate({"rule_id": "r", ...})`, or read from files.

"""
_DATAFRAMES = """\
## DataFrames

For DataFrames of a Spark session: `import buckets.spark as bs`; [the guide](../guides/dataframes.md) has an example.

"""
_WITHOUT_MEMBERS = "    options:\n      members: false\n"


def page() -> str:
    """Return the page: functions first, then classes."""
    return _INTRO + _places(buckets) + _DATAFRAMES + _places(buckets.spark)


def _places(module: ModuleType) -> str:
    """Return the places of the public names of a module."""
    names = sorted(module.__all__, key=lambda name: (inspect.isclass(getattr(module, name)), name))
    return "".join(_place(getattr(module, name)) for name in names)


def _place(public: type | object) -> str:
    """Return the place of a public name; of a model its fields stand on pages of their own."""
    is_model = inspect.isclass(public) and issubclass(public, BaseModel)
    return f"::: {public.__module__}.{public.__name__}\n{_WITHOUT_MEMBERS if is_model else ''}\n"  # type: ignore[union-attr]

"""The aggregates by the names that rules write: each module of this package that has an `AGGREGATE` is one.

All else that knows aggregates asks here: the models and the schema of rules, their sentences, the plan of the kernel,
lint, explanations, and the page of aggregates of the documentation.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from buckets.aggregates.aggregate import Aggregate


def _modules() -> Iterator[tuple[str, Aggregate]]:
    package = import_module("buckets.aggregates")
    for module in iter_modules(package.__path__):
        aggregate = getattr(import_module(f"{package.__name__}.{module.name}"), "AGGREGATE", None)
        if aggregate is not None:
            yield module.name, aggregate


AGGREGATES: Final[Mapping[str, Aggregate]] = MappingProxyType(dict(_modules()))
SHORT_FUNCTIONS: Final = tuple(name for name, aggregate in AGGREGATES.items() if aggregate.short_phrase)
"""The functions that rules in the short form may have."""

if TYPE_CHECKING:
    Function = str
    ShortFunction = str
else:
    Function = Literal[tuple(AGGREGATES)]
    ShortFunction = Literal[SHORT_FUNCTIONS]

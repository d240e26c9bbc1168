"""The aggregates by the names that rules write: `AGGREGATES` of all modules of this package.

Everything that needs aggregates looks here: the models and the schema of rules, their sentences, the plan of the
kernel, lint, explanations, and the documentation's page of aggregates.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from buckets.aggregates.aggregate import Aggregate

_PACKAGE = import_module("buckets.aggregates")
_AGGREGATES: dict[str, Aggregate] = {}
for _module in iter_modules(_PACKAGE.__path__):
    if _module.name != "registry":
        _AGGREGATES |= getattr(import_module(f"{_PACKAGE.__name__}.{_module.name}"), "AGGREGATES", {})

AGGREGATES: Final[Mapping[str, Aggregate]] = MappingProxyType(dict(sorted(_AGGREGATES.items())))
SHORT_FUNCTIONS: Final = tuple(name for name, aggregate in AGGREGATES.items() if aggregate.short_phrase)
"""The functions that rules in the short form may have."""

if TYPE_CHECKING:
    Function = str
    ShortFunction = str
else:
    Function = Literal[tuple(AGGREGATES)]
    ShortFunction = Literal[SHORT_FUNCTIONS]

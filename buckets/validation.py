"""Turns validation errors of pydantic into one line each, which names the field and the reason."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from buckets.printable import short_line

Location = tuple[int | str, ...]  # The steps from the whole value to a field: names of fields, and indices into lists
DEEPEST = 32  # How deep values may be nested; rules and settings need six
LIST_OF_EVENTS, FILE_OF_EVENTS = "(list of events)", "(file of events)"
OF_ALL_RULES, BY_RULE = "(of all rules)", "(by rule)"  # The forms of values that may be written in two ways
A_FIELD, OF_EACH_PERIOD = "(a field)", "(of each period)"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""The name of an environment variable in a text; a configuration takes them, and no other file does."""
_UNKNOWN, _OF_VALUE = "extra_forbidden", "value_error"
_LIKENESS = 0.7  # From which share of equal letters on a name is taken for another one with a slip in it
_NO_FIELDS = frozenset(
    {"function-before", LIST_OF_EVENTS, FILE_OF_EVENTS, OF_ALL_RULES, BY_RULE, A_FIELD, OF_EACH_PERIOD}
)
"""Steps that pydantic takes inside one field."""
_KINDS = {
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of fields",
    "model_type": "must be a mapping of fields",
}
"""What a value must be, where pydantic says it in Python's terms."""


class Checked(BaseModel):
    """Values that are checked against one another, and never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def _faults(self) -> Iterator[str | tuple[Location, str]]:
        """Yield what does not fit together, some of it with its location; the first is refused."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for fault in self._faults():
            at, text = ((), fault) if isinstance(fault, str) else fault
            raise PydanticCustomError(_OF_VALUE, "{text}", {"text": text, "at": at})
        return self


def first_fault(
    error: ValidationError, prefix: Location = (), model: type[BaseModel] | None = None
) -> tuple[Location, str]:
    """Return the first fault, in the form of `faults_of`; its line says how many more there are."""
    (location, fault), *more = faults_of(error, prefix, model)
    return location, f"{fault} (and {len(more)} more)" if more else fault


def faults_of(
    error: ValidationError, prefix: Location = (), model: type[BaseModel] | None = None
) -> list[tuple[Location, str]]:
    """Return the location of each fault, with a line that names field and reason; unknown fields, likely causes, first.

    They are compared with the known fields of a model. A field that is only missing because of a typo is not a fault.
    """
    faults = []
    meant: set[Location] = set()
    for each in sorted(error.errors(), key=lambda each: each["type"] != _UNKNOWN):
        location, reason = _location(each), _reason(each, getattr(model, "takes_variables", False))
        if each["type"] == _UNKNOWN:
            known = [] if model is None else _fields_at(model, location[:-1])
            found = closest(str(location[-1]), known)
            reason = f"unknown field{_unknown_hint(each, found)}"
            meant |= set() if found is None else {(*location[:-1], found)}
        elif location in meant:
            continue
        name = field_name((*prefix, *location))
        inside = each.get("ctx", {}).get("at", ())
        faults.append(((*prefix, *location, *inside), f"{name}: {reason}" if name else reason))
    return faults


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one probably meant; None if none is similar."""
    by_letters = {_letters(each): each for each in known}
    return next((by_letters[each] for each in get_close_matches(_letters(name), by_letters, 1, _LIKENESS)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name; empty if no known name is similar."""
    meant = closest(name, known)
    return "" if meant is None else f"; did you mean {meant}?"


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _unknown_hint(error: Any, meant: str | None) -> str:
    name = str(error["loc"][-1])
    if error.get("input") is None and name.replace(".", "").isdecimal():
        return f"; in braces a comma ends a value, so write numbers without: 1500, not 1,{name}"
    return "" if meant is None else f"; did you mean {meant}?"


def _location(error: Any) -> Location:
    return tuple(step for step in error["loc"] if step not in _NO_FIELDS)


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    models = [model]
    for step in location:
        named = [field for each in models for name, field in each.model_fields.items() if step in (name, field.alias)]
        models = [found for field in named for found in models_in(field.annotation)] if named else models
    return [field.alias or name for each in models for name, field in each.model_fields.items()]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in a type, such as those of a list or a union."""
    return [each for each in types_in(annotation) if isinstance(each, type) and issubclass(each, BaseModel)]


def types_in(annotation: Any) -> Iterator[Any]:
    """Return a type and all types that it contains."""
    yield annotation
    for part in get_args(annotation):
        yield from types_in(part)


def field_name(location: Location) -> str:
    """Return a location as people write it: `rules[2].window.length`."""
    text = ""
    for step in location:
        text += f"[{step + 1}]" if isinstance(step, int) else f".{step}" if text else step
    return short_line(text)


def _reason(error: Any, takes_variables: bool) -> str:
    """Describe a validation error in plain words; also say whether environment variables are replaced there."""
    if error["type"] == "missing":
        return "is missing"
    text = _KINDS.get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    given = error.get("input")
    if error["type"] != _OF_VALUE and isinstance(given, str | int | float | bool):
        text = f"{text}, not {given!r}"
    named = VARIABLE.search(given) if isinstance(given, str) else None
    if named is not None and "environment variable" not in text:
        of_variable = f"it comes from environment variable {named[1]}"
        text = (
            f"{text}; {of_variable if takes_variables else f'{named[0]} is not replaced here, write the value itself'}"
        )
    return short_line(text)

"""What pydantic finds wrong with a value, as one line that names the field and the reason."""

from typing import Any

from pydantic import ValidationError

from buckets.printable import short_line

Location = tuple[int | str, ...]
"""The steps from the whole value to a field: names of fields, and indices into lists."""
DEEPEST = 32
"""How deep values may be nested; rules and settings need six."""
LIST_OF_EVENTS, FILE_OF_EVENTS = "(list of events)", "(file of events)"
"""The forms of a value that may be written in two ways."""
_NO_FIELDS = frozenset({"function-before", LIST_OF_EVENTS, FILE_OF_EVENTS})
"""Steps that pydantic takes inside one field."""
_KINDS = {
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of fields",
    "model_type": "must be a mapping of fields",
}
"""What a value must be, where pydantic says it in Python's terms."""


def first_fault(error: ValidationError, prefix: Location = ()) -> tuple[Location, str]:
    """The first thing that is wrong.

    Args:
        error: what pydantic has found.
        prefix: the location of the value that was validated.

    Returns:
        Where it is; and one line that names the field and the reason, and says how many more faults there are.
    """
    first, *more = error.errors()
    location: Location = (*prefix, *(step for step in first["loc"] if step not in _NO_FIELDS))
    also = f" (and {len(more)} more)" if more else ""
    name = field_name(location)
    return location, f"{name}: {_reason(first)}{also}" if name else f"{_reason(first)}{also}"


def field_name(location: Location) -> str:
    """A location as people write it: `rules[2].window.length`."""
    text = ""
    for step in location:
        text += f"[{step + 1}]" if isinstance(step, int) else f".{step}" if text else step
    return short_line(text)


def _reason(error: Any) -> str:
    """One validation error in plain words."""
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "missing":
        return "is missing"
    text = _KINDS.get(error["type"], str(error["msg"]).removeprefix("Value error, "))
    given = error.get("input")
    if error["type"] != "value_error" and isinstance(given, str | int | float | bool):
        text = f"{text}, not {given!r}"
    return short_line(text)

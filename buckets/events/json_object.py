"""Reads one JSON object as Python's own `json` does, with numbers as text, or says why a text is not one."""

import json
import re
from typing import Any, NoReturn

from buckets.events.csv_events import BYTE_ORDER_MARK

DEEPEST = 500  # Levels of nesting that are read; the parsers' own limits are higher, and depend on the caller's stack
_QUOTED_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class Fields(tuple[tuple[str, Any], ...]):
    """The fields of an object with their values, as they are written, repeated ones too."""

    __slots__ = ()


def _integer(text: str) -> str:
    return "0" if text == "-0" else text


def _refuse(constant: str) -> NoReturn:
    message = f"broken JSON: {constant} is not a number in JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=str, parse_constant=_refuse, object_pairs_hook=Fields)


def read_object(text: str) -> Fields:
    """Read a text that is exactly one object, as `read_value` does.

    Returns:
        Its fields.

    Raises:
        ValueError: it is not an object; says why.
    """
    value = read_value(text)
    if not isinstance(value, Fields):
        kind = "null" if value is None else "a list" if isinstance(value, list) else "one value"
        message = f"is {kind}, and must be an object"
        raise ValueError(message)
    return value


def read_value(text: str) -> Any:
    """Read a text that is exactly one value; a byte order mark before it and white space around it are ignored.

    Returns:
        The value. Numbers are text, just as they are written (the integer -0 as 0); objects are `Fields`.

    Raises:
        ValueError: it is not a value; says why.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(text):
        message = f"broken JSON: nested deeper than {DEEPEST} levels"
        raise ValueError(message)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        fault = "there is more after the first value," if error.msg == "Extra data" else error.msg
        message = f"broken JSON: {fault} at character {error.pos + 1}"
        raise ValueError(message) from None


def _is_deep(text: str) -> bool:
    """Return whether brackets outside quotes are nested deeper than is read."""
    depth = 0
    for bracket in _QUOTED_OR_BRACKET.finditer(text):
        depth += _STEP.get(bracket[0], 0)
        if depth > DEEPEST:
            return True
    return False

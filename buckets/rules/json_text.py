"""JSON as messages and files of rules hold it: numbers with a point stay the text that they are, keys appear once."""

import json
from typing import Any, NoReturn

from buckets.validation import DEEPEST


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Return a text that is one object.

    Args:
        text: the text.
        what: what the object is, for error messages.

    Raises:
        ValueError: it is not one object; says why.
    """
    try:
        data = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    return checked_object(data, what)


def checked_object(data: Any, what: str) -> dict[str, Any]:
    """Return what `DECODER` has read, if it is an object that can be written again.

    Raises:
        ValueError: it is no object, holds half a character, or is nested too deep.
    """
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        message = f"broken JSON: {error.object[error.start]!a} is half a character"
        raise ValueError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    if not isinstance(data, dict):
        message = f"{what} is a JSON object, not {type(data).__name__}"
        raise ValueError(message)
    if _is_deeper(data, DEEPEST):
        message = f"broken JSON: values are nested more than {DEEPEST} deep"
        raise ValueError(message)
    return data


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _no_number(text: str) -> NoReturn:
    message = f"{text} is no number"
    raise ValueError(message)


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            message = f"key {key!r} is given twice"
            raise ValueError(message)
        found[key] = value
    return found


DECODER = json.JSONDecoder(parse_float=str, parse_constant=_no_number, object_pairs_hook=_keys_once)

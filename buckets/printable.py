"""Makes untrusted text safe to show: on one line, and without control characters."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from buckets.json_text import write_json

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"  # Fillers of Hangul, and the pattern of Braille without dots
_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""They turn the direction of what follows, so that a text reads as another one."""
_SHORT = 300
_MOST_ELEMENTS = 10
_PLAIN = re.compile(r"[\w.+/@:-]+")


def one_line(text: str) -> str:
    """Escape the invisible characters of a text as in a Python string: a line break as a backslash and an n."""
    return _escaped(text, _python_escape, "")


def visible(text: str) -> str:
    """Return lines of text with their invisible characters escaped as in a Python string."""
    return _escaped(text, _python_escape, "\n")


def visible_json(text: str) -> str:
    """Return equivalent JSON with its invisible characters escaped."""
    return _escaped(text, lambda character: json.dumps(character)[1:-1], "\n")


def key_words(key: Mapping[str, Any] | str) -> str:
    """Return a key or the fields of an event, as a mapping or as JSON, in words and on one line."""
    fields: Mapping[str, Any] = json.loads(key) if isinstance(key, str) else key
    return one_line(", ".join(f"{field} {field_words(value)}" for field, value in fields.items())) or "all events"


def field_words(value: Any) -> str:
    """Return a field of an event as people read it."""
    if not isinstance(value, list):
        return str(value)
    elements = ["null" if element is None else str(element) for element in value]
    return f"[{elements_shown(elements) if elements else ''}]"


def elements_shown(elements: Sequence[str]) -> str:
    """Return the elements of an array as people read them; if they are many, the first ones and their number."""
    if len(elements) <= _MOST_ELEMENTS:
        return ", ".join(elements) or "no elements"
    return f"{', '.join(elements[:_MOST_ELEMENTS])}, … ({len(elements):,} in all)"


def counted(number: int, thing: str) -> str:
    """Return a number of things in words: `1 rule`, `2,000 rules`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def capitalised(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]


def short_line(text: str) -> str:
    """Return the beginning of a text of any length, on one line."""
    return one_line(text if len(text) <= _SHORT else f"{text[:_SHORT]}…")


def quoted(text: str) -> str:
    """Return a text as part of a sentence: a plain word as it is, anything else in quotes and on one line."""
    return text if _PLAIN.fullmatch(text) else in_quotes(text)


def in_quotes(text: str) -> str:
    """Quote a text on one line, such that different texts stay different."""
    return one_line(write_json(text))


def unseen_character(text: str, allowed: str = "") -> str | None:
    """Return the first character of a text that is invisible, not blank and not allowed, as `U+001B`."""
    return _first(character for character in text if not _is_shown(character) and character not in allowed)


def misleading_character(text: str) -> str | None:
    """Return the first character that makes SQL or a value look like another: `U+202E`, or a control character.

    Other invisible characters are part of names in some scripts, and are shown escaped.
    """
    return _first(
        character
        for character in text
        if character in _TURNING or (unicodedata.category(character) == "Cc" and character not in "\n\t\r")
    )


def blank_letter(text: str) -> str | None:
    """Return the first character of a text that is a letter or sign without ink, as `U+3164`."""
    return _first(character for character in text if character in _BLANK_LETTERS)


def _first(characters: Iterable[str]) -> str | None:
    return next((f"U+{ord(character):04X}" for character in characters), None)


def _escaped(text: str, escape: Callable[[str], str], allowed: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if _is_shown(letter) or letter in allowed else escape(letter) for letter in text)


def _python_escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def value_text(value: object) -> str:
    """Return a value of a key as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

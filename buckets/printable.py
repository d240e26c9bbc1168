"""Text of other people, made safe to show: on one line, and without control characters."""

import json
import re
import unicodedata

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers of Hangul, and the pattern of Braille without dots."""
_SHORT = 300
_PLAIN = re.compile(r"[\w.+/@:-]+")


def one_line(text: str) -> str:
    """A text with its invisible characters escaped as in a Python string: a line break as a backslash and an n."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) else each.encode("unicode_escape").decode() for each in text)


def short_line(text: str) -> str:
    """The beginning of a text of any length, on one line."""
    return one_line(text if len(text) <= _SHORT else f"{text[:_SHORT]}…")


def quoted(text: str) -> str:
    """A text as part of a sentence: a plain word as it is, anything else in quotes and on one line."""
    return text if _PLAIN.fullmatch(text) else in_quotes(text)


def in_quotes(text: str) -> str:
    """A text in quotes and on one line; of different texts, different ones."""
    return one_line(json.dumps(text, ensure_ascii=False))


def unseen_character(text: str, allowed: str = "") -> str | None:
    """The first character of a text that cannot be seen, as `U+001B`; blanks of any width count as seen.

    Args:
        text: the text.
        allowed: characters that are passed over.
    """
    return next((f"U+{ord(each):04X}" for each in text if not _is_shown(each) and each not in allowed), None)


def blank_letter(text: str) -> str | None:
    """The first character of a text that is a letter or sign without ink, as `U+3164`."""
    return next((f"U+{ord(each):04X}" for each in text if each in _BLANK_LETTERS), None)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"

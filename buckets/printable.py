"""Text that others have written, as it may be shown: on one line, and without anything that a terminal obeys."""

import unicodedata

_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers of Hangul, and the pattern of Braille without dots."""


def one_line(text: str) -> str:
    """A text with what cannot be seen written as Python writes it in a string: a new line as a backslash and an n."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) else each.encode("unicode_escape").decode() for each in text)


def unseen_character(text: str, allowed: str = "") -> str | None:
    """The first character of a text that cannot be seen, as `U+001B`; blanks of any width can.

    Args:
        text: the text.
        allowed: characters that do not count.
    """
    return next((f"U+{ord(each):04X}" for each in text if not _is_shown(each) and each not in allowed), None)


def blank_letter(text: str) -> str | None:
    """The first character of a text that counts as a letter or sign and has no ink, as `U+3164`."""
    return next((f"U+{ord(each):04X}" for each in text if each in _BLANK_LETTERS), None)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"

"""Pieces of Markdown: tables, code and anchors."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell may hold anything but a line feed."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return a text as code within a line."""
    return f"`{text}`"


def fenced(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return "" if not text else text[0].upper() + text[1:].rstrip(".") + "."

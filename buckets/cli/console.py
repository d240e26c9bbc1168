"""What commands print, and the only way to do so: text of other people has no control characters, and is no markup."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from buckets.moment import iso_text, moment_ms
from buckets.printable import visible, visible_json


class Terminal(Console):
    """A console on which invisible characters are escaped, wherever they come from."""

    def __init__(self, stderr: bool = False, width: int | None = None) -> None:
        """Print on standard output, or on standard error."""
        super().__init__(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render what is printed, or a part of it; all text comes by here, of tables too."""
        return super().render(_visible(renderable) if isinstance(renderable, Text) else renderable, options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string, as wide as it is shown."""
        return super().render_str(visible(text), **options)

    def say(self, text: str) -> None:
        """Print a line that is not broken at the width of the terminal."""
        self.print(text, soft_wrap=True)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print lines of text as they are, but for invisible characters."""
    typer.echo(visible(text), err=err, nl=nl)


JSON_VERSION = 1
"""Of the objects that `--json` prints: a field that goes or means something else makes another version."""


def echo_report(report: Mapping[str, Any]) -> None:
    """Print what a command has found as one object of JSON, with the version of its form."""
    echo_json({"version": JSON_VERSION, **report})


def echo_json(value: Any, indent: int | None = 2) -> None:
    """Print data as JSON; what cannot be seen is escaped as JSON does it, so that readers get it unchanged."""
    typer.echo(json_text(value, indent))


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return data as JSON of visible characters: times in ISO 8601 and UTC to the millisecond, decimals as text."""
    return visible_json(json.dumps(value, indent=indent, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """Return a value that JSON does not know as one that it does."""
    if isinstance(value, datetime):
        return iso_text(moment_ms(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    message = f"{type(value).__name__} has no form in JSON"
    raise TypeError(message)


def _visible(text: Text) -> Text:
    """Return a text whose invisible characters are escaped, each in the style that it has."""
    shown = visible(text.plain)
    if shown == text.plain:
        return text
    escaped = text.blank_copy()
    for character in text.divide(range(1, len(text))):
        shown = visible(character.plain)
        spans = [Span(0, len(shown), span.style) for span in character.spans]
        escaped.append_text(Text(shown, character.style, spans=spans))
    return escaped

"""What commands print, and the only way to do so: text of other people has no control characters, and is no markup.

Tables are all of one form: texts are folded, numbers and names are whole.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Span, Text

from buckets.moment import iso_text, moment_ms
from buckets.printable import one_line, visible, visible_json

_NAMES = ("Rule", "List", "Topic", "Output", "Test")  # Columns whose words people copy
_WIDEST_NAME = 32
Level = Literal["info", "warning", "error"]
_WIDEST_WORD = 10  # Cells of the longest words that are not broken


class Terminal(Console):
    """A console on which invisible characters are escaped, wherever they come from."""

    def __init__(self, stderr: bool = False, width: int | None = None) -> None:
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

    def tell(self, text: str, level: Level = "info", facts: Mapping[str, Any] | None = None) -> None:
        """Print a line of a job's log; level and facts are for programs, and shown by `JsonLog` alone."""
        self.say(text)


class TextTable(Table):
    """A table of texts and numbers."""

    def __init__(
        self,
        title: str | None,
        columns: Sequence[str],
        rows: Iterable[Iterable[RenderableType]] = (),
        show_lines: bool = False,
    ) -> None:
        """Begin a table; the name of a column of numbers has a > before it, that of one which is never folded a =."""
        super().__init__(title=title, title_justify="left", show_lines=show_lines)
        for name in columns:
            justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
            self.add_column(name.lstrip(">="), overflow="fold", justify=justify, no_wrap=name.startswith((">", "=")))
        self._longest_name = 0
        self._has_other_texts = any(name not in _NAMES and not name.startswith(">") for name in columns)
        for row in rows:
            self.add_row(*row)

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        """Add a row; where there are other texts to be folded, names stay whole, unless one is very long."""
        super().add_row(*cells, style=style, end_section=end_section)
        for column, cell in zip(self.columns, cells, strict=False):
            if column.justify == "right" or not isinstance(cell, str | Text):
                continue
            is_name = column.header in _NAMES
            longest = max(map(cell_len, str(cell).splitlines() if is_name else str(cell).split()), default=0)
            if is_name:
                self._longest_name = max(self._longest_name, longest)
                column.no_wrap = self._has_other_texts and self._longest_name <= _WIDEST_NAME
            else:
                column.min_width = max(column.min_width or 0, min(longest, _WIDEST_WORD))


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: most commands end as by Ctrl-C, and what runs until it is stopped has been stopped."""


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print lines of text as they are, but for invisible characters."""
    typer.echo(visible(text), err=err, nl=nl)


JSON_VERSION = 1  # Of the objects that `--json` prints: a field that goes or means something else makes another version


def echo_report(report: Mapping[str, Any]) -> None:
    """Print what a command has found as one object of JSON, with the version of its form."""
    typer.echo(report_text(report))


def report_text(report: Mapping[str, Any]) -> str:
    """Return what a command has found as one object of JSON, as `echo_report` prints it."""
    return json_text({"version": JSON_VERSION, **report})


def echo_json(value: Any, indent: int | None = 2) -> None:
    """Print data as JSON; what cannot be seen is escaped as JSON does it, so that readers get it unchanged."""
    typer.echo(json_text(value, indent))


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return data as JSON of visible characters: times in ISO 8601 and UTC to the millisecond, decimals as text."""
    return visible_json(json.dumps(value, indent=indent, ensure_ascii=False, default=_plain))


def print_table(table: TextTable, none: str) -> None:
    """Print a table, or a line where it has no rows."""
    if table.row_count:
        Terminal().print(table)
    else:
        echo(one_line(none))


def newest_of(rows: Sequence[Any], limit: int, things: str) -> str:
    """Return the title of a table of the newest of some rows."""
    return one_line(f"{min(limit, len(rows)):,} of {len(rows):,} {things}, newest first")


def _plain(value: Any) -> Any:
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

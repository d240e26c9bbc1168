"""Tables of the terminal, all of one form: texts are folded, numbers and names are whole."""

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

_NAMES = ("Rule", "List", "Topic", "Output", "Test")
"""Columns whose words people copy."""
_WIDEST_NAME = 32
_WIDEST_WORD = 10
"""Cells of the longest words that are not broken."""


class TextTable(Table):
    """A table of texts and numbers."""

    def __init__(
        self,
        title: str | None,
        columns: Sequence[str],
        numbers: Collection[str] = (),
        show_lines: bool = False,
    ) -> None:
        """Begin a table.

        Args:
            title: what stands above it.
            columns: their headers, from left to right.
            numbers: those that hold numbers.
            show_lines: whether there are lines between rows.
        """
        super().__init__(title=title, title_justify="left", show_lines=show_lines)
        for name in columns:
            is_number = name in numbers
            self.add_column(name, overflow="fold", justify="right" if is_number else "left", no_wrap=is_number)
        self._longest_name = 0
        self._has_other_texts = not {*_NAMES, *numbers}.issuperset(columns)

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

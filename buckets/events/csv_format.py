"""The format of CSV files: separators of fields, spelling of numbers, encoding, and names of columns."""

import codecs
import string
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from buckets.validation import Checked

_ONLY_OF_PYTHON = frozenset(
    {"idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
)
"""Codecs in which no file is written."""


def _is_delimiter(value: str) -> str:
    if value == "\\t":
        message = 'a tab is written in double quotes: "\\t"'
        raise ValueError(message)
    if len(value) != 1 or value.isalnum() or value in '"\r\n\0':
        wanted = "one character that is not a letter, digit or quote"
        message = f"must be {wanted}, as in ';', '|' or \"\\t\", not {value!r}"
        raise ValueError(message)
    return value


def _codec(value: str) -> str:
    try:
        name = codecs.lookup(value).name
        "".encode(name)
    except (LookupError, ValueError):
        name = ""
    if not name or name.replace("_", "-") in _ONLY_OF_PYTHON:
        message = f"{value!r} is not an encoding of text that Python has; such are utf-8, cp1252, iso8859-15, utf-16"
        raise ValueError(message)
    return "utf-8" if name == "utf-8-sig" else name


class CsvFormat(Checked):
    r"""How events are written in CSV. All files of a source are written in one way.

    Attributes:
        delimiter: the character between fields: `,`, `;`, `|`, a tab (`"\t"`).
        decimal: what stands before the fraction of a measure.
        thousands: what stands between groups of three digits in measures and fields of type `long`, which may be left
            out there: `.`, `,`, an apostrophe or a space, also one that does not break.
        encoding: the encoding of the text, such as `cp1252`, as Python calls it.
        header: the names of the columns of files that have no header line; an empty name is a column that is not read.
    """

    delimiter: Annotated[str, AfterValidator(_is_delimiter)] = ","
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", "'", " "] | None = None
    encoding: Annotated[str, AfterValidator(_codec)] = "utf-8"
    header: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()

    def _faults(self) -> Iterator[str]:
        if self.decimal == self.thousands:
            yield f"thousands: is {self.decimal!r} as `decimal` is; a number would have two readings"
        for name in filter(None, self.header):
            if self.header.count(name) > 1:
                yield f"header: {name!r} is there twice"

    @property
    def is_by_line(self) -> bool:
        """Whether bytes can be split into lines before decoding; in UTF-16 they cannot."""
        return string.printable.encode(self.encoding, "replace") == string.printable.encode()

    @property
    def line_encoding(self) -> str:
        """The encoding of lines when they reach the parser: files that cannot be split as bytes are decoded earlier."""
        return self.encoding if self.is_by_line else "utf-8"

    def mark_fault(self, begin: bytes) -> str | None:
        """Return a fault if a file begins with the mark of UTF-8 but another encoding is declared."""
        if self.encoding == "utf-8" or not self.is_by_line or not begin.startswith(codecs.BOM_UTF8):
            return None
        return f"begins with the mark of UTF-8, and csv.encoding is {self.encoding}; save it so, or leave that out"

    @property
    def encoding_name(self) -> str:
        """The encoding, for people."""
        return self.encoding.upper() if self.encoding.startswith("utf") else self.encoding


PLAIN_CSV = CsvFormat()  # How CSV is written where nothing is declared

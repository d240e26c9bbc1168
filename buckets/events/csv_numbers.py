"""Numbers in CSV as they are declared: with a decimal comma, or groups of thousands, turned into the spelling of JSON.

What is not grouped in threes, or has a separator that is not declared, is no number: `1.000` could be one, or a
thousand.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.csv_format import PLAIN_CSV, CsvFormat
from buckets.events.moment_text import Faults
from buckets.printable import short_line

_SEPARATORS = {".": r"\.", ",": ",", "'": "['\u2019]", " ": "[ \u00a0\u202f]"}
"""Each separator as an expression of what is taken for it: a space that does not break is a space."""


def plain_numbers(texts: pa.Array, csv: CsvFormat) -> tuple[pa.Array, Faults]:
    """Return numbers as JSON spells them, and by row why a text is none; what is no number at all may stay as it is."""
    if csv.decimal == PLAIN_CSV.decimal and csv.thousands is None:
        rows = pc.indices_nonzero(pc.match_substring_regex(texts, "[ ,'\u2019\u00a0\u202f]|\\..*\\.").fill_null(False))
        suspects = zip(rows.to_pylist(), texts.take(rows).to_pylist(), strict=True)
        return texts, {row: _reason(text, csv) for row, text in suspects if any(_readings(text, csv))}
    fits = pc.match_substring_regex(texts, f"^(?:{_pattern(csv)})$").fill_null(True)
    faults = {}
    if not pc.all(fits).as_py():
        rows = pc.indices_nonzero(pc.invert(fits))
        texts_of = texts.take(rows).to_pylist()
        faults = {row: _reason(text, csv) for row, text in zip(rows.to_pylist(), texts_of, strict=True)}
    return pc.if_else(fits, _plain(texts, csv), None), faults


def _pattern(csv: CsvFormat) -> str:
    """Return the expression of numbers, which Arrow and Python read alike."""
    whole = "[0-9]+"
    if csv.thousands is not None:
        whole = f"[0-9]{{1,3}}(?:{_SEPARATORS[csv.thousands]}[0-9]{{3}})+|{whole}"
    point = _SEPARATORS[csv.decimal]
    return f"[+-]?(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"


def _plain(texts: pa.Array, csv: CsvFormat) -> pa.Array:
    if csv.thousands is not None:
        texts = pc.replace_substring_regex(texts, _SEPARATORS[csv.thousands], "")
    return texts if csv.decimal == "." else pc.replace_substring(texts, csv.decimal, ".")


def _reason(text: str, csv: CsvFormat) -> str:
    """Say what is wrong with a number, and which declarations would read it."""
    groups = "" if csv.thousands is None else f' and thousands: "{csv.thousands}" between groups of three digits'
    hints = [f"csv: {declared} reads {plain}" for declared, plain in _readings(text, csv)]
    return f'{short_line(repr(text))} is no number with decimal: "{csv.decimal}"{groups}' + "".join(
        f"{'; ' if at == 0 else ', '}{hint}" for at, hint in enumerate(hints)
    )


def _readings(text: str, csv: CsvFormat) -> Iterator[tuple[str, str]]:
    """Yield other declarations of numbers by which a text is one, and what it is then.

    A decimal comma that is declared is not doubted.
    """
    for decimal in (".", ",") if csv.decimal == "." and csv.thousands is None else (csv.decimal,):
        for thousands in (None, ".", ",", "'", " "):
            if thousands == decimal or (decimal, thousands) == (csv.decimal, csv.thousands):
                continue
            other = CsvFormat.model_construct(decimal=decimal, thousands=thousands)
            without_groups = thousands is not None and re.search(_SEPARATORS[thousands], text) is None
            if without_groups or re.fullmatch(_pattern(other), text) is None:
                continue
            declared = f'decimal: "{decimal}"' if decimal != PLAIN_CSV.decimal else ""
            grouped = "" if thousands is None else f'thousands: "{thousands}"'
            yield f"{{{', '.join(filter(None, (declared, grouped)))}}}", _plain(pa.array([text]), other)[0].as_py()

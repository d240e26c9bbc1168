"""Functions of texts, of Arrow arrays and scalars; NULL of NULL. Letters are code points.

`levenshtein(a, b)`
    How many letters have to be put in, left out or exchanged to make one text of the other.
`jaro_winkler(a, b)`
    How much two texts are alike, from 0 to 1: their similarity by Jaro and, where that is above 0.7, a tenth of what it
    lacks of 1 for each letter with which both begin, up to four. Exact, then rounded half-even to 6 digits. 0 if one is
    empty.

Both are NULL where a text has more than `LONGEST_COMPARED` letters.
"""

import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from buckets.numbers.fixed_point import half_to_even

LONGEST_COMPARED: Final = 1_000
LONGEST_MADE: Final = 100_000  # Bytes in UTF-8 of a text that `concat` and `replace` make; a longer one is NULL
SIMILARITY_DIGITS: Final = 6
TEXT_FUNCTIONS: Final[dict[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text: text.strip(" "),
}
"""Python's functions, which handle letters that become two, as in Spark; Arrow does not."""
_WILD: Final = {"%": ".*", "_": "."}


def match(operator: str, texts: pa.Array | pa.Scalar, pattern: str) -> pa.BooleanArray | pa.BooleanScalar:
    """Return which texts pass a test of `PATTERN_TESTS`; NULL for NULL."""
    if operator == "regexp":
        return pc.match_substring_regex(texts, pattern)
    return match_like(texts, pattern) if operator == "like" else match_like(_changed(texts, str.lower), pattern.lower())


def match_like(texts: pa.Array | pa.Scalar, pattern: str) -> pa.BooleanArray | pa.BooleanScalar:
    """Return which texts match a LIKE pattern; NULL for NULL."""
    if "\\" not in pattern:
        return pc.match_like(texts, pattern)
    # Arrow misreads an escaped backslash at the end.
    expression, letters = "", iter(pattern)
    for letter in letters:
        expression += re.escape(next(letters, "")) if letter == "\\" else _WILD.get(letter) or re.escape(letter)
    return pc.match_substring_regex(texts, f"(?s)^{expression}$")


def concat(*texts: Any) -> Any:
    """Concatenate texts."""
    size = reduce(pc.add, (pc.cast(pc.binary_length(text), pa.int64()) for text in texts))
    return pc.binary_join_element_wise(_unless_too_long(texts[0], size), *texts[1:], "")


def replace(texts: Any, replaced: str, by: str) -> Any:
    """Replace each occurrence of a text by another."""
    more = len(by.encode()) - len(replaced.encode())
    growth = pc.multiply(pc.cast(pc.count_substring(texts, replaced), pa.int64()), more)
    return pc.replace_substring(_unless_too_long(texts, pc.add(pc.binary_length(texts), growth)), replaced, by)


def _unless_too_long(texts: Any, sizes: Any) -> Any:
    return pc.if_else(pc.greater(sizes, LONGEST_MADE), None, texts)


def substring(texts: Any, first: int, length: int | None = None) -> Any:
    """Return the letters from number `first` on, counted from 1, or from the end if negative."""
    start = first - 1 if first > 0 else first
    stop = None if length is None or (start < 0 and start + length >= 0) else start + length
    return pc.utf8_slice_codeunits(texts, start, stop)


def split_part(texts: Any, delimiter: str, number: int) -> Any:
    """Return part `number` between delimiters, from 1, or from the last back from -1; empty if missing."""

    def part(text: str) -> str:
        parts = text.split(delimiter)
        is_there = number <= len(parts) if number > 0 else -number <= len(parts)
        return parts[number - 1 if number > 0 else number] if is_there else ""

    return _changed(texts, part)


def levenshtein(first: str, second: str) -> int | None:
    """Return the edit distance of two texts, computed by whole columns of its table as bits of two numbers.

    Source: H. Hyyrö, "Explaining and extending the bit-parallel approximate string matching algorithm of Myers", 2001.
    """
    if max(len(first), len(second)) > LONGEST_COMPARED:
        return None
    if not first:
        return len(second)
    every, last, distance = (1 << len(first)) - 1, 1 << (len(first) - 1), len(first)
    places = _places(first)
    rises, falls = every, 0
    for letter in second:
        equal = places.get(letter, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | (every & ~(diagonal | rises)), rises & diagonal
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1) | 1, down << 1
        rises, falls = every & (down | ~(diagonal | up)), up & diagonal & every
    return distance


def _places(text: str) -> dict[str, int]:
    """Return the positions of each letter, as bits."""
    places: dict[str, int] = {}
    for at, letter in enumerate(text):
        places[letter] = places.get(letter, 0) | 1 << at
    return places


def jaro_winkler(first: str, second: str) -> int | None:
    """Return the similarity of two texts, scaled to `SIMILARITY_DIGITS`."""
    if max(len(first), len(second)) > LONGEST_COMPARED:
        return None
    reach, places, free = max(max(len(first), len(second)) // 2 - 1, 0), _places(second), -1
    matched = ""
    for at, letter in enumerate(first):
        near = ((1 << (at + reach + 1)) - 1) & (-1 << max(at - reach, 0))
        if here := places.get(letter, 0) & near & free:
            free ^= here & -here
            matched += letter
    if not matched:
        return 0
    others = (letter for at, letter in enumerate(second) if not free >> at & 1)
    count, exchanged = len(matched), sum(map(str.__ne__, matched, others)) // 2
    product = len(first) * len(second)
    alike = count * count * (len(first) + len(second)) + (count - exchanged) * product
    most = 3 * count * product
    if alike * 10 > most * 7:
        prefix = next((at for at in range(4) if first[at : at + 1] != second[at : at + 1] or at >= len(first)), 4)
        alike, most = (10 - prefix) * alike + prefix * most, 10 * most
    return half_to_even(alike * 10**SIMILARITY_DIGITS, most)


COMPARED_TEXTS: Final[dict[str, tuple[Callable[[str, str], int | None], int]]] = {
    "jaro_winkler": (jaro_winkler, SIMILARITY_DIGITS),
    "levenshtein": (levenshtein, 0),
}
"""Functions of two texts that return a number, with its digits after the point."""
CHANGED_TEXTS: Final[dict[str, Callable[..., Any]]] = {
    **{name: partial(lambda change, texts: _changed(texts, change), change) for name, change in TEXT_FUNCTIONS.items()},
    "concat": concat,
    "replace": replace,
    "split_part": split_part,
    "substring": substring,
}
"""Functions of texts, and of literal values, that return a text."""


def compared_texts(name: str, first: Any, second: Any) -> Any:
    """Return the int64 results of a function of `COMPARED_TEXTS`, computing each distinct pair of texts once."""
    compare = COMPARED_TEXTS[name][0]
    columns = [[each.as_py()] if isinstance(each, pa.Scalar) else each.to_pylist() for each in (first, second)]
    rows = max(map(len, columns)) if all(columns) else 0
    pairs = list(zip(*(column * rows if len(column) == 1 else column for column in columns), strict=True))
    known = {pair: None if None in pair else compare(*pair) for pair in set(pairs)}
    found = pa.array([known[pair] for pair in pairs], pa.int64())
    return found[0] if isinstance(first, pa.Scalar) and isinstance(second, pa.Scalar) else found


def _changed(texts: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to texts, once for each distinct one."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(change(texts.as_py()) if texts.is_valid else None, pa.string())
    coded = texts.dictionary_encode()
    return pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)

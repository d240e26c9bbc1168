r"""`LIKE`: `%` for any characters, `_` for one, and `\` before one that stands for itself, as in Spark.

A short pattern is matched by Arrow, whose time grows with the text and the pattern multiplied, which the length bounds;
but not one with a backslash, of which Arrow makes something else at its end. All others are matched here in a single
pass over the text:

1. `%` parts the pattern into pieces. The first stands at the beginning of the text, and the last at its end.
2. Of those between, each is looked for behind the one before it. Its first place is the best one: whatever may follow a
   later place may follow an earlier one, too.
3. A piece without `_` is looked for as a text. For one with `_` a number holds, as bits, how many of its characters the
   text may end with so far; each further character shifts all of them at once (Shift-And).

Source: R. Baeza-Yates and G. Gonnet, A new approach to text searching, CACM 35 (1992).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SHORT: Final = 64
"""Up to how many characters a pattern is short."""
_ONE = None
"""What stands in a piece for any one character."""


def match_like(texts: pa.Array | pa.Scalar, pattern: str) -> pa.BooleanArray | pa.BooleanScalar:
    """Return which texts match a pattern; NULL of NULL."""
    if len(pattern) <= _SHORT and "\\" not in pattern:
        return pc.match_like(texts, pattern)
    if isinstance(texts, pa.Scalar):
        return match_like(pa.array([texts.as_py()], pa.string()), pattern)[0]
    compiled = like_pattern(pattern)
    matches = {text: None if text is None else compiled.matches(text) for text in texts.unique().to_pylist()}
    return pa.array([matches[text] for text in texts.to_pylist()], pa.bool_())


@lru_cache(maxsize=64)
def like_pattern(pattern: str) -> "LikePattern":
    """Return a pattern that has been read."""
    pieces: list[list[str | None]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == "%":
            pieces.append([])
        elif letter == "_":
            pieces[-1].append(_ONE)
        else:
            pieces[-1] += next(letters, "") if letter == "\\" else letter
    return LikePattern(tuple(_Piece(tuple(piece)) for piece in pieces))


@dataclass(frozen=True)
class _Piece:
    """A part of a pattern between two `%`: its characters, None for any one."""

    letters: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.letters)

    @cached_property
    def _plain(self) -> str | None:
        """Its text; None where any one character may stand somewhere in it."""
        return None if _ONE in self.letters else "".join(filter(None, self.letters))

    @cached_property
    def _bits(self) -> tuple[dict[str, int], int]:
        """By character the places at which it may stand, as bits, and those of all characters that it has not."""
        anywhere = sum(1 << at for at, letter in enumerate(self.letters) if letter is _ONE)
        bits: dict[str, int] = {}
        for at, letter in enumerate(self.letters):
            if letter is not _ONE:
                bits[letter] = bits.get(letter, anywhere) | 1 << at
        return bits, anywhere

    def is_at(self, text: str, begin: int) -> bool:
        """Return whether a text that is long enough has it at a place."""
        if self._plain is not None:
            return text.startswith(self._plain, begin)
        return all(letter in (_ONE, text[at]) for at, letter in enumerate(self.letters, begin))

    def end_in(self, text: str, begin: int, end: int) -> int:
        """Return where it ends in a part of a text, at its first place; -1 where it has none."""
        if self._plain is not None:
            found = text.find(self._plain, begin, end)
            return found if found < 0 else found + len(self)
        bits, anywhere = self._bits
        last, matched = 1 << len(self) - 1, 0
        for at in range(begin, end):
            matched = (matched << 1 | 1) & bits.get(text[at], anywhere)
            if matched & last:
                return at + 1
        return -1


@dataclass(frozen=True)
class LikePattern:
    """A pattern that has been read, as its pieces between `%`."""

    pieces: tuple[_Piece, ...]

    def matches(self, text: str) -> bool:
        """Return whether a text matches it, in one pass over the text."""
        first, last = self.pieces[0], self.pieces[-1]
        if len(self.pieces) == 1:
            return len(text) == len(first) and first.is_at(text, 0)
        at, end = len(first), len(text) - len(last)
        if at > end or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        for piece in self.pieces[1:-1]:
            at = piece.end_in(text, at, end)
            if at < 0:
                return False
        return True

"""The words of a `.proto` file: names, numbers, texts and signs, without comments."""

import re
from dataclasses import dataclass

from buckets.events.text_lines import BYTE_ORDER_MARK

_WORD = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<sign>[{}\[\]()<>=;,:+/.-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_NAMED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class ProtobufSchemaError(ValueError):
    """A text is no Protobuf schema, or has no such message; says why."""


@dataclass(frozen=True)
class Word:
    """A word: `kind` is `text`, `number`, `name`, `sign`, or `end` behind the last one."""

    kind: str
    text: str
    line: int


def words_of(text: str) -> list[Word]:
    """Split a `.proto` file into its words.

    Raises:
        ProtobufSchemaError: something in it is none.
    """
    text, words, at, line = text.removeprefix(BYTE_ORDER_MARK), [], 0, 1
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            message = f"has {text[at]!r} in line {line}, which is no word of a .proto file"
            raise ProtobufSchemaError(message)
        kind = str(match.lastgroup)
        if kind != "gap":
            words.append(Word(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*words, Word("end", "", line)]


def unquoted(text: str) -> bytes:
    """Return the bytes of a text in quotes, with its escapes resolved."""
    return _ESCAPE.sub(_resolved, text[1:-1].encode())


def _resolved(match: re.Match[bytes]) -> bytes:
    octal, digits, short, long, named = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if digits is not None:
        return bytes([int(digits, 16)])
    if named is not None:
        return _NAMED.get(named, named)
    return chr(min(int(short or long, 16), 0x10FFFF)).encode("utf-8", "replace")

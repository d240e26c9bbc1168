"""Rows as nobody should write them: lines of JSON and CSV drawn at random, and what Python itself makes of each.

Most lines are events or nearly so: numbers of any size and spelling, texts of any code points, nesting, repeated
fields. Some are broken on top: cut off, a second object after it, bytes changed, a byte order mark, carriage returns.
"""

import csv
import io
import json
import re
from decimal import Context, Decimal, localcontext
from random import Random
from typing import Any

from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from tests.core.examples import SCHEMA

NEEDED = frozenset({"payer", "amount"})
FIELDS = SCHEMA.field_names
HEADER = [*FIELDS, "extra"]
SKIPPED, DEAD = "skipped", "dead letter"
_BORDERS = [0, 1, 99, 100, 2**53 + 1, 10**16 + 1, INT64_MAX, INT64_MAX + 1, -INT64_MIN, 92233720368547759, 10**40 + 1]
_ODD_NUMBERS = [
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    "-Infinity",
    "0x1F",
    "1e",
    "--1",
    "1_000",
    "1,5",
    "",
    " 1",
    "-",
    "1e+",
    "٣",
]
_ODD_TEXTS = [
    "",
    "\x00",
    "\x01",
    "\u3000",
    "\xa0",
    "\ufeff",
    "\u2028",
    "é",
    "e\u0301",
    "\U0001f600",
    "\x7f",
    '"',
    "\\",
    "/",
]
_HALVES = ["\\ud800", "\\udc00", "\\uDBFF", "\\ud83d", "\\ud800\\ud800"]
_PLAIN_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", "/": "\\/"}
_MARK = "\ufeff".encode()
_IN_FRONT = [_MARK, _MARK * 2, b"\xff\xfe", b"\t", b"\x0c", b"[", b" "]
_AFTER = [b"}", b"]", b" x", b"\x00", b"\r", b"\r\r", _MARK]
_INSTEAD = [b"", b" ", b"\t\r", b"\x0b\x0c", "\u3000".encode(), "\xa0".encode(), b"\x1c", b"null", b"[]", b"{}"]


# Numbers and texts


def number(dice: Random) -> str:
    """A number, nearly always one that JSON knows; seldom one that a measure can hold."""
    if dice.random() < 0.03:
        return dice.choice(_ODD_NUMBERS)
    digits = str(
        dice.choice(_BORDERS) if dice.random() < 0.3 else dice.getrandbits(dice.choice([4, 10, 30, 60, 64, 200]))
    )
    whole = digits
    if dice.random() < 0.5:
        places = dice.choice([1, 2, 2, 2, 3, 20])
        padded = digits.rjust(places + 1, "0")
        whole = f"{padded[:-places]}.{padded[-places:]}" + "0" * dice.choice([0, 0, 0, 1, 80])
    power = ""
    if dice.random() < 0.2:
        power = (
            dice.choice("eE")
            + dice.choice(["", "+", "-"])
            + dice.choice(["0", "1", "2", "02", "19", "400", "99999999"])
        )
    return ("-" if dice.random() < 0.2 else "") + whole + power


def amount(dice: Random) -> str:
    """A number that a measure of scale 2 holds."""
    return f"{dice.randrange(-(10**7), 10**7)}.{dice.randrange(100):02}" if dice.random() < 0.8 else number(dice)


def text(dice: Random) -> str:
    """Some code points; no surrogates."""
    if dice.random() < 0.7:
        return f"p{dice.randrange(1000)}"
    if dice.random() < 0.3:
        return dice.choice([*_ODD_TEXTS, *FIELDS, "true", "NULL", number(dice)])
    highest = dice.choice([0x80, 0x100, 0x3000, 0xD800, 0x10FFFF])
    points = (dice.randrange(highest) for _ in range(dice.randrange(8)))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def quoted(dice: Random, content: str) -> str:
    """A text as JSON, escaped where it has to be, and elsewhere as the dice fall."""
    parts = []
    more = dice.choice([0, 0, 0, 0.2, 1])
    for letter in content:
        if letter in '"\\' or letter < " " or dice.random() < more:
            units = letter.encode("utf-16-be")
            long = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
            parts.append(_PLAIN_ESCAPES.get(letter, long) if dice.random() < 0.7 else long)
        else:
            parts.append(letter)
    if dice.random() < 0.005:
        parts.insert(dice.randrange(len(parts) + 1), dice.choice([*_HALVES, "\\q", "\\u12", "\t", "\x00"]))
    return f'"{"".join(parts)}"'


# Lines of JSON


def _value(dice: Random, depth: int = 0) -> str:
    """Any value."""
    kind = dice.randrange(8 if depth < 4 else 6)
    if kind < 2:
        return quoted(dice, text(dice))
    if kind < 4:
        return number(dice)
    if kind < 6:
        return dice.choice(["true", "false", "null"])
    parts = [_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind == 6:
        return f"[{','.join(parts)}]"
    return f"{{{','.join(f'{quoted(dice, text(dice))}:{part}' for part in parts)}}}"


def _field(dice: Random, name: str) -> str:
    """A value of a field, mostly one that fits."""
    if dice.random() < 0.03:
        return _value(dice)
    if name == "at":
        written = str(dice.randrange(10**12)) if dice.random() < 0.9 else number(dice)
    elif name == "account":
        written = str(dice.randrange(10**6)) if dice.random() < 0.9 else number(dice)
    elif name in ("amount", "fee"):
        written = amount(dice) if name == "amount" else str(dice.randrange(10**6))
    elif name == "vip":
        return dice.choice(["true", "false", '"true"', '"FALSE"', "null"])
    else:
        return quoted(dice, text(dice)) if dice.random() < 0.8 else number(dice)
    return written if dice.random() < 0.6 else quoted(dice, written)


def json_line(dice: Random) -> bytes:
    """A line of JSON, or of nearly so."""
    fields = [name for name in FIELDS if dice.random() < 0.99]
    fields += [dice.choice(["extra", "Id", "ID", "amount ", "__event__", "é"]) for _ in range(dice.randrange(2))]
    fields += [dice.choice(FIELDS)] * (dice.random() < 0.02)
    if dice.random() < 0.3:
        dice.shuffle(fields)

    def space() -> str:
        return "" if tight else dice.choice(["", "", " ", "\t", "\r", "  "])

    def named(name: str) -> str:
        return f'"{name}"' if plain else quoted(dice, name)

    tight, plain = dice.random() < 0.7, dice.random() < 0.95
    parts = [f"{space()}{named(name)}{space()}:{space()}{_field(dice, name)}{space()}" for name in fields]
    line = f"{space()}{{{','.join(parts)}}}{space()}".encode()
    return _broken(dice, line) if dice.random() < 0.12 else line


def _broken(dice: Random, line: bytes) -> bytes:
    """A line with something done to it."""
    at = dice.randrange(len(line) + 1)
    return dice.choice(
        [
            lambda: line[:at],
            lambda: line + dice.choice([b" ", b"", b","]) + json_line(dice),
            lambda: line + b',"foo":{"a":1}',
            lambda: line + b',"__event__":' + line,
            lambda: line + dice.choice(_AFTER),
            lambda: dice.choice(_IN_FRONT) + line,
            lambda: line[:at] + bytes([dice.choice([*range(10), *range(11, 256)])]) + line[at + dice.randrange(2) :],
            lambda: b'{"x":' + b"[" * (deep := dice.choice([9, 99, 20_000])) + b"]" * deep + b"," + line[1:],
            lambda: line[:-1] + b',"x":' + b'{"y":[' * 100 + b"]}" * 100 + b"}",
            lambda: dice.choice(_INSTEAD),
        ]
    )().replace(b"\n", b"\r")  # fmt: skip


# Lines of CSV


def csv_line(dice: Random) -> bytes:
    """A line of CSV with the fields of `HEADER`, or nearly so."""
    values = [_field(dice, name).strip('"[]{}') for name in HEADER]
    line = io.StringIO()
    csv.writer(line, lineterminator="", quoting=dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])).writerow(values)
    done = line.getvalue().encode().replace(b"\n", b" ")
    return _broken(dice, done) if dice.random() < 0.08 else done


# What Python makes of them


class Written(str):
    """A number as it was written."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object."""


def expected_of_json(line: bytes) -> Any:
    """What a line of JSON should come to: the event as a dictionary, `DEAD`, or `SKIPPED`."""
    if not line.strip():
        return SKIPPED
    try:
        found = json.loads(
            line.decode().removeprefix("\ufeff"),
            parse_float=Written,
            parse_int=Written,
            parse_constant=lambda word: json.loads("no number"),
            object_pairs_hook=_Pairs,
        )
    except (ValueError, RecursionError):
        return DEAD
    if not isinstance(found, _Pairs):
        return DEAD
    names = [name for name, _ in found if name in FIELDS]
    return DEAD if len(names) > len(set(names)) else _event(dict(found))


def expected_of_csv(line: bytes) -> Any:
    """What a line of CSV should come to."""
    if not line.strip():
        return SKIPPED
    try:
        (values,) = csv.reader([line.decode().rstrip("\r")], strict=True)
    except (ValueError, csv.Error):
        return DEAD
    return (
        _event({name: value or None for name, value in zip(HEADER, values, strict=True)})
        if len(values) == len(HEADER)
        else DEAD
    )


def _event(row: dict[str, Any]) -> Any:
    try:
        event = {name: _typed(name, row.get(name)) for name in FIELDS}
    except ValueError:
        return DEAD
    missing = any(event[name] is None for name in ("id", "at", *NEEDED))
    return DEAD if missing or event["id"] == "" else event


def _typed(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in SCHEMA.measures:
        return _scaled(value, SCHEMA.measures[name].scale)
    kind = SCHEMA.attributes.get(name, "long" if name == "at" else "string")
    if kind == "boolean":
        if isinstance(value, Written) or str(value).lower() not in ("true", "false"):
            raise ValueError
        return str(value).lower() == "true"
    if name == "at":
        return _time(value)
    if kind == "long":
        return _scaled(value, 0)
    if not isinstance(value, str):
        raise ValueError
    value.encode()
    return "0" if isinstance(value, Written) and value == "-0" else str(value)


def _decimal(value: Any) -> Decimal:
    """A number as Python reads it; of the words and spaces that it reads too, none is a number here."""
    if not isinstance(value, str) or re.fullmatch(r"[-+0-9.eE]+", value) is None:
        raise ValueError
    try:
        return Decimal(value)
    except ArithmeticError:
        raise ValueError from None


def _scaled(value: Any, scale: int) -> int:
    found = _decimal(value)
    if not found:
        return 0
    if found.adjusted() > 40 or found.adjusted() < -40:
        raise ValueError
    sign, digits, exponent = found.as_tuple()
    ratio = int(Decimal((0, digits, 0)))
    shift = int(exponent) + scale
    whole, rest = divmod(ratio * 10 ** max(shift, 0), 10 ** max(-shift, 0))
    whole = -whole if sign else whole
    if rest or not INT64_MIN <= whole <= INT64_MAX:
        raise ValueError
    return whole


def _time(value: Any) -> int:
    found = _decimal(value)
    if abs(found.adjusted()) > 40 and found:
        if found.adjusted() < 0:
            return -1 if found < 0 else 0
        raise ValueError
    with localcontext(Context(prec=200)):
        time_ms = int(found // 1) - (found < 0 and found % 1 != 0)
    if not SCHEMA.event_time.earliest_ms <= time_ms < SCHEMA.event_time.latest_ms:
        raise ValueError
    return time_ms

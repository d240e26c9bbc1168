"""Numbers of things as people write them: `20000`, `50M`, `1.5G`, and keys of single groupings: `payerId=50M`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
MOST = 10**12
_FORM = re.compile(r"(\d{1,16}(?:\.\d{1,9})?) ?([a-z]?)", re.ASCII | re.IGNORECASE)


def parse_number(text: str) -> float:
    """Read a number of things, such as `50M`.

    Args:
        text: digits, with a point perhaps, and a unit: k for thousands, M for millions, G or B for thousands of them.

    Returns:
        The number, above 0 and up to a million millions.

    Raises:
        ValueError: not of that form, or not between these.
    """
    match = _FORM.fullmatch(text.strip())
    unit = None if match is None else UNITS.get(match[2].lower())
    if match is None or unit is None:
        message = f"{text!r} is no number of things; write digits and perhaps k, M or G, as in 20000, 20k or 1.5M"
        raise ValueError(message)
    number = Decimal(match[1]) * unit
    if not 0 < number <= MOST:
        message = f"{text!r} is out of bounds; write more than 0 and at most {MOST // UNITS['g']:,}G"
        raise ValueError(message)
    return float(number)


@dataclass(frozen=True)
class DifferentKeys:
    """How many different keys groupings have."""

    of_all: float | None  # of each that is not named; None: all are named
    of_named: Mapping[frozenset[str], float]  # by the fields of a grouping

    def of(self, fields: Iterable[str]) -> float | None:
        """Return the keys of a grouping; None where nothing says how many."""
        named = frozenset(fields)
        return self.of_named.get(named, self.of_all) if named else 1.0


def parse_keys(texts: Iterable[str]) -> DifferentKeys:
    """Read the values of `--keys`: a number for all groupings, `FIELD=NUMBER` or `FIELD,FIELD=NUMBER` for one.

    Raises:
        ValueError: one is not of that form, is below 1, or comes twice.
    """
    counts: dict[frozenset[str], float] = {}
    for text in texts:
        names, mark, number = text.rpartition("=")
        fields = [name.strip() for name in names.split(",")] if mark else []
        if not all(fields):
            message = f"{text!r} names no fields; write FIELD=NUMBER, or FIELD,FIELD=NUMBER"
            raise ValueError(message)
        count = parse_number(number)
        if count < 1:
            message = f"{text!r} is less than one key; write 1 or more"
            raise ValueError(message)
        if counts.setdefault(frozenset(fields), count) != count:
            message = f"{text!r} is said in another way before; say it once"
            raise ValueError(message)
    return DifferentKeys(counts.pop(frozenset(), None), counts)

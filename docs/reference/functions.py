"""The page of all functions: those of features over their windows, and those of conditions.

`python -m tests.published` writes it. What goes with a function is tried with the rules themselves.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from buckets.aggregates.aggregate import NUMBERS
from buckets.aggregates.over_periods import OVER_PERIODS
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.rules.feature import Feature
from docs.reference.markdown import code, table

_WINDOWS: Final[Mapping[str, dict[str, Any]]] = {
    "`exclude`": {"length": "30d", "exclude": "current"},
    "`offset`": {"length": "30d", "offset": "1d"},
    "`last`": {"last": 10, "within": "30d"},
    "`session`": {"session": "1h", "within": "30d"},
    "`this`": {"this": "month"},
}
_REQUIRED: Final[Mapping[str, dict[str, Any]]] = {
    "percentile": {"p": 95},
    "decayed_count": {"half_life": "7d"},
    "decayed_sum": {"half_life": "7d"},
    "sequence": {"steps": ["a = 1", "a = 2"]},
    "absence": {"steps": ["a = 1"], "without": "a = 2", "within": "1h"},
}
CONDITIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "abs": ("abs(x)", "the number without its sign", ""),
    "array_size": ("array_size(items[].sku)", "how many elements an array has", "of a null array"),
    "coalesce": ("coalesce(x, y, …)", "the first value that is not null", "if all are"),
    "concat": ("concat(x, y, …)", "the texts behind each other; also `||`", "if one is, or beyond 100,000 bytes"),
    "date": ("date(t)", "the date as a text such as `'2026-12-24'`", ""),
    "day": ("day(t)", "the day of the month", ""),
    "dayofweek": ("dayofweek(t)", "1 for Sunday to 7 for Saturday", ""),
    "geo_speed_kmh": (
        "geo_speed_kmh(lat, lon, earlier_lat, earlier_lon, seconds)",
        "how fast somebody went from one point to another, in km/h with 3 digits",
        "of a negative time, or a place that does not exist",
    ),
    "greatest": ("greatest(x, y, …)", "the greatest number or text; nulls are passed over", "if all are"),
    "hour": ("hour(t)", "0 to 23", ""),
    "is_weekend": ("is_weekend(t)", "whether it is Saturday or Sunday", ""),
    "jaro_winkler": (
        "jaro_winkler(x, y)",
        "how alike two texts are, 0 to 1 with 6 digits",
        "beyond 1,000 letters",
    ),
    "least": ("least(x, y, …)", "the least number or text; nulls are passed over", "if all are"),
    "length": ("length(x)", "how many letters a text has", ""),
    "levenshtein": ("levenshtein(x, y)", "how many letters make one text of the other", "beyond 1,000 letters"),
    "ln": ("ln(x)", "the natural logarithm, with 18 digits", "of 0 and below"),
    "lookup": ("lookup(list, x, 'field')", "what a list has for a key", "without the key"),
    "lower": ("lower(x)", "the text in lower case", ""),
    "minute": ("minute(t)", "0 to 59", ""),
    "month": ("month(t)", "1 to 12", ""),
    "ratio": ("ratio(a, b)", "`a / b`, with 18 digits", "divided by 0"),
    "replace": ("replace(x, 'a', 'b')", "the text with `b` wherever `a` stands", "beyond 100,000 bytes"),
    "round": ("round(x, digits)", "to so many digits, 0 if left out; a tie goes away from zero", ""),
    "split_part": ("split_part(x, '-', n)", "the n-th part between delimiters; empty if there is none", ""),
    "sqrt": ("sqrt(x)", "the square root, with 18 digits", "below 0"),
    "substring": ("substring(x, first, length)", "letters of a text; without a length, to the end", ""),
    "trim": ("trim(x)", "the text without blanks at its ends", ""),
    "upper": ("upper(x)", "the text in upper case", ""),
    "year": ("year(t)", "the year", ""),
    "zscore": ("zscore(x, mean, deviation)", "`(x - mean) / deviation`, with 18 digits", "of a deviation of 0"),
}
"""By the name of a function of conditions, how it is written, its value, and when it is null beside a null operand."""
_INTRO = f"""\
# Functions

## Of features {"{"} #of-features {"}"}

A feature computes one of these over the events of its window. Rules in the short form have
{", ".join(map(code, SHORT_FUNCTIONS))}. [Aggregates](aggregates.md) says what `p`, `steps` and `half_life` are.

- **Of** is the field that the function takes: a *number* is a measure or an attribute of type `long`; *any field* is a
  number, a text or a boolean.
- **NULL** is when the feature is NULL. Events with a null in the field are left out, in every function.
- **Exact** is *always* where single events are looked at: then the window has to lie in the `tail` of the job. Where it
  is *in the tail*, windows may reach further, and a value at whose edge a bucket lies has
  [bounds](../explanation/bounds.md).
- **Not with** names what the function does not go with: kinds of
  [windows](../guides/write-rules.md#windows-before-the-event), filters that name
  [`this`](../guides/write-rules.md#events-compared-with-this-one), timelines of
  [another role](../guides/write-rules.md#another-role-as-key) or of
  [alerts](../guides/rules-over-alerts.md#alerts-in-rules-over-events). Everything else goes with it.
- **Of periods** is whether it may be of what each day or other period
  [comes to](../guides/write-rules.md#a-customers-own-days).

"""
_OF_CONDITIONS = """
## Of conditions { #of-conditions }

These stand in `where`, `when`, computed scores and derived fields. They are null if an operand is, unless the table
says otherwise. `t` is the event time, or the event time in a zone. [SQL conditions](sql-conditions.md) has the
operators, and the details.

"""


def _goes_with(name: str, **beside: Any) -> bool:
    written = {"function": name, "window": "30d"} | _REQUIRED.get(name, {}) | beside
    try:
        Feature.model_validate(written | ({"of": "a"} if AGGREGATES[name].takes else {}))
    except ValidationError:
        return False
    return True


def feature_rows() -> list[tuple[str, ...]]:
    """Return a row for each function of features."""
    rows: list[tuple[str, ...]] = []
    for name, each in AGGREGATES.items():
        assert _goes_with(name), name
        takes = "number" if each.takes == NUMBERS else "any field" if each.takes else ""
        tried: dict[str, dict[str, Any]] = {words: {"window": window} for words, window in _WINDOWS.items()}
        tried |= {"`where`": {"where": "b = 1"}} if each.needs_steps else {}
        tried |= {"`this.`": {"where": "b = this.b"}, "roles": {"group_by": ["b AS c"]}, "alerts": {"on": "alerts"}}
        without = [words for words, beside in tried.items() if not _goes_with(name, **beside)]
        exact = "always" if each.needs_raw_events else "in the tail"
        periods = "yes" if name in OVER_PERIODS else ""
        rows.append((code(name), each.description, takes, each.null_when, exact, ", ".join(without), periods))
    return rows


def condition_rows() -> list[tuple[str, ...]]:
    """Return a row for each function of conditions."""
    return [(code(written), value, null_when) for written, value, null_when in CONDITIONS.values()]


def page() -> str:
    """Return the page."""
    of_features = table(("Function", "What it is", "Of", "NULL", "Exact", "Not with", "Of periods"), feature_rows())
    return _INTRO + of_features + _OF_CONDITIONS + table(("Function", "Value", "Null"), condition_rows())

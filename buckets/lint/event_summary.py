"""What a file of events shows of rules: which filters let events pass, which keys there are, how often rules fire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from buckets.events.bad_rows import BadRows
from buckets.rules.filter import Filter


@dataclass(frozen=True)
class KeyCounts:
    """The keys of a grouping: how many keys and events there are, the largest key, and how many events that has."""

    keys: int
    largest: int
    largest_key: tuple[Any, ...]
    events: int


@dataclass(frozen=True)
class EventSummary:
    """What a file of events has shown.

    Attributes:
        events: how many there are.
        bad: the rows that are no events, and what was rounded.
        passed: by filter, how many events pass.
        nulls: by field, in how many events it is null.
        keys: by the fields of a grouping.
        fired: by rule, at how many events it would fire; rules that could not be tried are not in it.
        floating: the fields of text that the file has as floating point, each with the type of its column.
    """

    events: int
    bad: BadRows
    passed: Mapping[Filter, int]
    nulls: Mapping[str, int]
    keys: Mapping[tuple[str, ...], KeyCounts]
    fired: Mapping[str, int]
    floating: Mapping[str, str] = field(default_factory=dict)

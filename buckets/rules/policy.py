"""What a rule says of its alerts besides what holds them back: for whom and when it counts, how grave they are."""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from buckets.moment import Moment, moment_ms, moment_text
from buckets.printable import short_line

Severity = Literal["low", "medium", "high", "critical"]
LARGEST_SCORE = 1_000_000_000
MOST_TAGS = 50
LONGEST_TAG = 200
WHOLE_SHARE = 10_000  # Hundredths of a per cent that make all keys
ALWAYS_MS = -(2**62), 2**62  # Before every event, and after every event
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)\s*%", re.ASCII)


def parse_share(value: Any) -> int:
    """Read a share of keys such as `10%`.

    Raises:
        ValueError: it is none.
    """
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not 0 < Decimal(match[1]) <= 100:
        message = f"{value!r} is not a share of keys; write 0.01% to 100%, as in 10%"
        raise ValueError(message)
    return int(Decimal(match[1]) * 100)


def share_text(value: int) -> str:
    """Return a share of keys as people write it."""
    return f"{Decimal(value).scaleb(-2).normalize():f}%"


Share = Annotated[int, BeforeValidator(parse_share), PlainSerializer(share_text, return_type=str, when_used="json")]
"""A share of keys, in hundredths of a per cent; people write `10%`."""


class Effective(BaseModel):
    """From when until when a rule is in effect, by the time of events; `until` is the first moment that is not."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: Moment | None = Field(default=None, alias="from")
    until: Moment | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> "Effective":
        if self.start is None and self.until is None:
            message = "needs `from`, `until` or both"
            raise ValueError(message)
        if self.start is not None and self.until is not None and self.start >= self.until:
            start, until = moment_text(self.start), moment_text(self.until)
            message = f"from {start} is not before until {until}, so no event is in it"
            raise ValueError(message)
        return self

    def span_ms(self) -> tuple[int, int]:
        """Return the first event time that is in it, and the first one after it, in ms."""
        first_ms, last_ms = ALWAYS_MS
        start_ms = first_ms if self.start is None else moment_ms(self.start)
        return start_ms, last_ms if self.until is None else moment_ms(self.until)


def tag_fault(tag: str) -> str | None:
    """Return what is wrong with a tag, if anything."""
    if not tag or tag.strip() != tag:
        return f"{short_line(repr(tag))} is empty, or begins or ends with a blank; write a word, as in cards"
    if len(tag) > LONGEST_TAG:
        return f"a tag has at most {LONGEST_TAG} characters, not {len(tag)}; write a word, as in cards"
    return None

"""A planted case: a fraud whose events, and the event at which it can first be known, are on record."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from buckets.generator.transactions import Integers, Transactions, transaction_id

Pattern = Literal["structuring", "card-testing", "mule-fan-in", "five-in-five"]
PATTERNS: tuple[Pattern, ...] = ("structuring", "card-testing", "mule-fan-in", "five-in-five")


@dataclass(frozen=True)
class PlantedCase:
    """The truth about one planted case; one line of the truth file.

    Attributes:
        case_id: unique in its stream.
        pattern: how the fraud is done.
        rule_id: the rule of `conf/demo-rules.yaml` that catches it. Other rules may fire on the same events: twelve
            payments in ten minutes are also five in five.
        key: the rule's grouping fields and their values.
        event_ids: the planted events, by time.
        first_time: time of the first of them, in epoch ms.
        last_time: time of the last of them, in epoch ms.
        detect_event_id: the event at which the planted events alone first cross the rule's limit.
        detect_by_time: its time, in epoch ms.
        description: the case in English.
    """

    case_id: str
    pattern: Pattern
    rule_id: str
    key: dict[str, str]
    event_ids: tuple[str, ...]
    first_time: int
    last_time: int
    detect_event_id: str
    detect_by_time: int
    description: str

    def to_json(self) -> str:
        """Return the case as one line of JSON, without its line end."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Draft:
    """A `PlantedCase` whose events have no numbers yet; `detect` is the row of the event that crosses the limit."""

    pattern: Pattern
    rule_id: str
    key: dict[str, str]
    events: Transactions
    detect: int
    description: str

    def numbered(self, case_number: int, numbers: Integers) -> PlantedCase:
        """Make the case, from its number (from 1, in its pattern) and those of its events, by time."""
        ids = tuple(transaction_id(number) for number in numbers.tolist())
        time_ms = self.events.event_time_ms.tolist()
        return PlantedCase(
            case_id=f"{self.pattern}-{case_number:03d}",
            pattern=self.pattern,
            rule_id=self.rule_id,
            key=self.key,
            event_ids=ids,
            first_time=time_ms[0],
            last_time=time_ms[-1],
            detect_event_id=ids[self.detect],
            detect_by_time=time_ms[self.detect],
            description=self.description,
        )

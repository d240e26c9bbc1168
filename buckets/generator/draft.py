"""A planted case that is not in the stream yet, so that its events have no ids."""

from dataclasses import dataclass

from buckets.generator.case import Pattern, PlantedCase
from buckets.generator.transactions import Integers, Transactions, transaction_id


@dataclass(frozen=True)
class Draft:
    """A case whose events have no numbers yet.

    Attributes:
        pattern: how the fraud is done.
        rule_id: the rule that catches it.
        key: the rule's grouping fields and their values.
        events: the planted events, by time; no two at the same time.
        detect: row of the event at which the rule's limit is first crossed.
        description: the case in English.
    """

    pattern: Pattern
    rule_id: str
    key: dict[str, str]
    events: Transactions
    detect: int
    description: str

    def numbered(self, case_number: int, numbers: Integers) -> PlantedCase:
        """The case, once its events have been numbered.

        Args:
            case_number: from 1, in its pattern.
            numbers: of the planted events, by time.
        """
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

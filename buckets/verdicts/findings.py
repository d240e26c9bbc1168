"""What counts of all verdicts: the latest on each alert, and what they say together of an event."""

from collections.abc import Iterable
from dataclasses import dataclass

from buckets.verdicts.verdict import Verdict


@dataclass(frozen=True)
class Findings:
    """The verdicts that count.

    Attributes:
        by_alert: the latest verdict on each alert.
        by_event: of each event the latest of those that count on it and on its alerts; one that is unclear only
            where there is no other.
    """

    by_alert: dict[str, Verdict]
    by_event: dict[str, Verdict]

    def of(self, alert_id: str, event_id: str) -> Verdict | None:
        """Return the verdict on an alert: the latest on the alert itself; without one, what counts of its event.

        A payment is fraud or it is not, whatever rule has found it. So an alert of a rule on trial, which nobody looks
        at, has the verdict of an alert in force on the same event.
        """
        return self.by_alert.get(alert_id) or self.by_event.get(event_id)


def findings(verdicts: Iterable[Verdict]) -> Findings:
    """Return what counts of verdicts, in whatever order they come."""
    latest: dict[tuple[str | None, str | None], Verdict] = {}
    for verdict in verdicts:
        known = latest.get(verdict.subject)
        if known is None or verdict.age > known.age:
            latest[verdict.subject] = verdict
    by_event: dict[str, Verdict] = {}
    for verdict in latest.values():
        if verdict.event_id is not None:
            known = by_event.get(verdict.event_id)
            if known is None or _weight(verdict) > _weight(known):
                by_event[verdict.event_id] = verdict
    by_alert = {verdict.alert_id: verdict for verdict in latest.values() if verdict.alert_id is not None}
    return Findings(by_alert, by_event)


def _weight(verdict: Verdict) -> tuple[bool, tuple[int, str]]:
    return verdict.verdict != "unclear", verdict.age

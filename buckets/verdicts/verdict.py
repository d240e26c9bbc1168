"""A verdict: what a person has found about an alert, or about an event that raised none."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from buckets.audit.rows import read_message
from buckets.audit.tables import audit_tables
from buckets.outputs.columns import VERDICTS
from buckets.outputs.output import Row

Finding = Literal["fraud", "legitimate", "unclear"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)
VERSION = 1
TABLE = audit_tables([VERDICTS])[VERDICTS]
"""The table into which the audit writes verdicts that come through a topic."""


@dataclass(frozen=True)
class Verdict:
    """What somebody has found.

    Attributes:
        id: its identity; what comes again with the same one is a repeat.
        verdict: what was found.
        by: who has found it.
        made_at_ms: when, in ms since the epoch.
        alert_id: the alert; None where the event raised none.
        event_id: the event; None where only the alert is known.
        note: what else there is to say.
        rule_id: the rule of the alert, where known.
        event_time_ms: when the event happened, where known.
        key: the key of the alert, or fields of the event, where known.
        amount: of the event, where it was given.
    """

    id: str
    verdict: Finding
    by: str
    made_at_ms: int
    alert_id: str | None = None
    event_id: str | None = None
    note: str | None = None
    rule_id: str | None = None
    event_time_ms: int | None = None
    key: Mapping[str, Any] | None = None
    amount: Decimal | None = None

    @property
    def subject(self) -> tuple[str | None, str | None]:
        """Return what it is about: an alert, or an event. Of several verdicts on one subject the latest counts."""
        return (self.alert_id, None) if self.alert_id is not None else (None, self.event_id)

    @property
    def age(self) -> tuple[int, str]:
        """Return by what verdicts are ordered: when they were made; at one moment the id decides."""
        return self.made_at_ms, self.id

    def message(self) -> str:
        """Return the verdict as the value of a message; see `schemas/verdict-v1.json`."""
        fields = {
            "version": VERSION,
            "id": self.id,
            "alert_id": self.alert_id,
            "event_id": self.event_id,
            "verdict": self.verdict,
            "by": self.by,
            "note": self.note,
            "made_at": self.made_at_ms,
            "rule_id": self.rule_id,
            "event_time": self.event_time_ms,
            "key": None if self.key is None else dict(self.key),
            "amount": None if self.amount is None else format(self.amount, "f"),
        }
        return json.dumps(fields, ensure_ascii=False)

    def row(self) -> Row:
        """Return the verdict as a row of a table, which is what the audit would make of its message.

        Raises:
            ValueError: it does not fit the schema; says which field, and why.
        """
        try:
            return read_message(TABLE, self.message().encode())
        except UnicodeEncodeError:
            message = "holds half of a character, a lone surrogate"
            raise ValueError(message) from None


def identity(subject: tuple[str | None, str | None], verdict: str, by: str, made_at_ms: int, note: str | None) -> str:
    """Return the id of a verdict: the same for one that says the same, so that reading a file twice changes nothing."""
    parts = json.dumps([*subject, verdict, by, made_at_ms, note or ""])
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()

"""Results as messages: JSON values, a key by which they stay in order, and an id by which repeats are known.

The values are described in `schemas/*.json`, one file an output. Times are epoch ms, decimals are strings.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from buckets.events.arrivals import INGESTED
from buckets.events.schema import EventSchema
from buckets.outputs.columns import PUBLISHED
from buckets.outputs.json_lines import JsonLines
from buckets.rules.rule_set import RuleSet

NEWEST_VERSION = 2
"""Newest version of the schemas of alerts and evaluations; it goes up when a field goes or changes its meaning."""
OTHER_VERSION = 1
"""That of the other outputs."""
_NEW = ("terms", "condition", "severity", "tags", "score", "held_back")
"""Fields that messages of version 1 lack."""
ID = "id"


@dataclass(frozen=True)
class Message:
    """One message, not yet sent.

    Attributes:
        key: messages of one key stay in order.
        value: JSON.
        identity: the same however often the batch is run.
    """

    key: str
    value: str
    identity: str


@dataclass(frozen=True)
class ShownRow:
    """What a message says, not yet written.

    Attributes:
        key: messages of one key stay in order.
        fields: as JSON has them.
        identity: the same however often the batch is run.
    """

    key: str
    fields: dict[str, Any]
    identity: str


class Messages:
    """Writes rows of outputs as messages."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema, version: int = NEWEST_VERSION) -> None:
        """Write results of a rule set.

        Args:
            rule_set: the rules that were in force.
            schema: the event schema.
            version: of alerts and evaluations, 1 or 2. Those of rules with features have no form in version 1, and are
                written in version 2.
        """
        self._version = version
        self._lines = JsonLines(rule_set, schema)
        self._fields = {rule.rule_id: list(rule.group_by) for rule in rule_set.rules}

    def of(self, output: str, table: pa.Table, decided_ms: int) -> Iterator[Message]:
        """Yield the rows of an output as messages in JSON; arguments and order as `shown`."""
        for each in self.shown(output, table, decided_ms):
            yield Message(each.key, json.dumps(each.fields, ensure_ascii=False), each.identity)

    def shown(self, output: str, table: pa.Table, decided_ms: int) -> Iterator[ShownRow]:
        """Yield what messages of the rows of an output say, in arrival order.

        Args:
            output: its name.
            table: its rows.
            decided_ms: when the batch's results were known, in ms since the epoch; alerts carry it.
        """
        for row in self._lines.ordered(table):
            shown = self._versioned(output, self._lines.shown(output, row))
            shown |= {"source": row["source"], "position": row["position"]}
            if "alert_id" in shown:
                identity = shown["alert_id"]
                shown |= {
                    "group_by": self._fields[row["rule_id"]],
                    "ingested_at": shown.pop(INGESTED, None),
                    "decided_at": decided_ms,
                }
            else:
                identity = _identity(output, row)
                shown[ID] = identity
            yield ShownRow(row.get("key") or row["source"], shown, identity)

    def _versioned(self, output: str, shown: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the version of its schema."""
        if PUBLISHED[output].version == OTHER_VERSION:
            return {"version": OTHER_VERSION} | shown
        if self._version == 1 and shown["value"] is not None:
            return {"version": 1} | {name: value for name, value in shown.items() if name not in _NEW}
        if shown["value"] is None and shown["count"] == 0:
            shown |= {"count": None}  # as the schema has it: of a NULL, no count
        return {"version": NEWEST_VERSION} | shown


def _identity(output: str, row: dict[str, Any]) -> str:
    """Return the identity of a row that is no alert: of its output, position in the source, group or rule, and event.

    The event counts because several events may share a position, if a column gives the arrival order.
    """
    names = ("source", "position", "group", "rule_id", "key", "event_id", "event_time", "raw")
    parts = json.dumps([output, *(row.get(name) for name in names)], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()

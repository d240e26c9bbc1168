"""Results as messages: JSON values, a key by which they stay in order, and an id by which repeats are known.

The values are described in `schemas/*.json`, one file an output. Times are epoch ms, decimals are strings.

Results as JSON lines, the form of `buckets evaluate`.
Outputs as files of JSON lines in a folder, which are put in place together when all of them are whole.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa

from buckets.events.arrivals import INGESTED
from buckets.events.schema import EventSchema
from buckets.files import partial_of
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, format_scaled
from buckets.outputs import columns
from buckets.outputs.columns import EVALUATIONS, OBJECTS, PUBLISHED
from buckets.rules.rule import value_scale
from buckets.rules.rule_set import RuleSet

_DROPPED = ("source", "source_order")


class JsonLines:
    """Writes rows of outputs as text."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        """Write results of a rule set.

        Args:
            rule_set: the rules that were in force.
            schema: the event schema, for the scales of values.
        """
        self._rule_index = {rule.rule_id: index for index, rule in enumerate(rule_set.rules)}
        of_measures = (rule for rule in rule_set.rules if rule.measure is not None)
        self._scale = {rule.rule_id: value_scale(rule, schema) for rule in of_measures}
        self._largest_scale = schema.largest_scale
        self._group_index = {group.name: index for index, group in enumerate(rule_set.groups)}

    def lines(self, output: str, table: pa.Table) -> Iterator[str]:
        """Yield the rows of an output, in arrival order, rules of one event in the order of the rule file."""
        for row in self.ordered(table):
            yield json.dumps(self.shown(output, row), ensure_ascii=False)

    def ordered(self, table: pa.Table) -> list[dict[str, Any]]:
        """Return the rows as plain data, times in ms, in that order."""
        return sorted(_plain_rows(table), key=self._order)

    def _order(self, row: dict[str, Any]) -> tuple[Any, ...]:
        rule = self._rule_index.get(row.get("rule_id", ""), 0)
        return row["source_order"], row["source"], row["position"], rule, self._group_index.get(row.get("group", ""), 0)

    def shown(self, output: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row as it is written: keys and events as objects, values with the digits of their rule."""
        shown = {name: value for name, value in row.items() if name not in _DROPPED}
        if output == EVALUATIONS:
            del shown["position"]
        for name in OBJECTS:
            if shown.get(name) is not None:
                shown[name] = json.loads(shown[name])
        scale = self._scale.get(row["rule_id"], 0) if "rule_id" in row else self._largest_scale
        for name, value in shown.items():
            if isinstance(value, Decimal):
                scaled = _unscaled(value) // 10 ** (self._largest_scale + AVERAGE_EXTRA_DIGITS - scale)
                shown[name] = format_scaled(scaled, scale)
        return shown


def _unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as an integer."""
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries, times as integers."""
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    yield from table.to_pylist()


ID = "id"


@dataclass(frozen=True)
class Message:
    """One message, not yet sent."""

    key: str  # messages of one key stay in order
    value: str  # JSON
    identity: str  # the same however often the batch is run


@dataclass(frozen=True)
class ShownRow:
    """What a message says, not yet written."""

    key: str  # messages of one key stay in order
    fields: dict[str, Any]  # as JSON has them
    identity: str  # the same however often the batch is run


class Messages:
    """Writes rows of outputs as messages."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema) -> None:
        """Write results of a rule set.

        Args:
            rule_set: the rules that were in force.
            schema: the event schema.
        """
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
        version = PUBLISHED[output].version
        if version > 1 and shown["value"] is None and shown["count"] == 0:
            shown |= {"count": None}  # as the schema has it: of a NULL, no count
        return {"version": version} | shown


def _identity(output: str, row: dict[str, Any]) -> str:
    """Return the identity of a row that is no alert: of its output, position in the source, group or rule, and event.

    The event counts because several events may share a position, if a column gives the arrival order.
    """
    names = ("source", "position", "group", "rule_id", "key", "event_id", "event_time", "raw")
    parts = json.dumps([output, *(row.get(name) for name in names)], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


OUTPUTS = (EVALUATIONS, *(output.name for output in columns.OUTPUTS if output.name != EVALUATIONS))


class JsonFiles:
    """Files that are written, and that replace earlier ones at the end; without an end they are removed.

    Attributes:
        lines: how many lines each output has.
    """

    def __init__(self, folder: Path, writer: JsonLines) -> None:
        """Write into a folder that is there.

        Args:
            folder: the folder.
            writer: what makes lines of rows.
        """
        self.lines = dict.fromkeys(OUTPUTS, 0)
        self._paths = {output: folder / f"{output}.jsonl" for output in OUTPUTS}
        self._writer = writer
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "JsonFiles":
        """Open them."""
        for output, path in self._paths.items():
            self._files[output] = self._open.enter_context(partial_of(path).open("wb"))
        return self

    def write(self, output: str, rows: pa.Table) -> None:
        """Write rows of an output, which come after those before; others than `OUTPUTS` are left out."""
        if output in self._files:
            for line in self._writer.lines(output, rows):
                self._files[output].write(f"{line}\n".encode())
                self.lines[output] += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put them in place, or remove them."""
        self._open.close()
        for path in self._paths.values():
            if error is None:
                partial_of(path).replace(path)
            else:
                partial_of(path).unlink(missing_ok=True)

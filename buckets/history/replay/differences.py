"""Rows as they were recorded compared with rows as they came out again, whatever their order.

Rows that are equal in all columns are found by grouping both sides at once, a column at a time. Only what is left is
looked at row by row, paired by what a row is about.

Keys that the job and a replay have evicted at other moments, and the differences that follow from that.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.outputs import columns
from buckets.outputs.columns import identity_of
from buckets.rules.rule import Rule

ComparedRow = dict[str, Any]
DifferenceKind = Literal["recorded_only", "replayed_only", "different"]
KINDS: tuple[DifferenceKind, ...] = ("recorded_only", "replayed_only", "different")
_SIDE, _ROW = "side", "row"
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class RowDifference:
    """A row that is not on both sides alike."""

    output: str  # its output
    # `recorded_only`: it did not come out again; `replayed_only`: it came out, and is not recorded; `different`: it is
    # on both sides, and some fields differ
    kind: DifferenceKind
    fields: tuple[str, ...]  # the fields that differ; none where it is on one side only
    recorded: ComparedRow | None  # the row as it is recorded
    replayed: ComparedRow | None  # the row as it came out

    @property
    def row(self) -> ComparedRow:
        """The row, as it is recorded where it is."""
        row = self.recorded if self.recorded is not None else self.replayed
        assert row is not None
        return row

    @property
    def is_cold(self) -> bool:
        """Whether one of the sides says that its windows were not complete."""
        return any(row is not None and row.get("warm") is False for row in (self.recorded, self.replayed))


def differences(output: str, recorded: pa.Table, replayed: pa.Table) -> list[RowDifference]:
    """Compare rows of an output, which have the same columns in the same types. Cost: O(rows)."""
    rows = _unmatched(recorded, replayed)
    only_recorded = recorded.take(pa.array(rows[rows < len(recorded)])).to_pylist()
    only_replayed = replayed.take(pa.array(rows[rows >= len(recorded)] - len(recorded))).to_pylist()
    return list(_paired(output, only_recorded, only_replayed))


def _unmatched(recorded: pa.Table, replayed: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows without an equal row on the other side; those of the other side are counted on."""
    whole = pa.concat_tables([_plain(recorded), _plain(replayed)])
    # Copied, for Arrow complains of payloads, whose buffers are not aligned.
    whole = whole.take(pa.array(np.arange(len(whole))))
    side = np.repeat(np.array([1, -1], np.int64), [len(recorded), len(replayed)])
    names = whole.column_names
    numbered = whole.append_column(_SIDE, pa.array(side)).append_column(_ROW, pa.array(np.arange(len(whole))))
    # Without threads rows come out in the order in which they went in.
    grouped = numbered.group_by(names, use_threads=False).aggregate([(_SIDE, "sum"), (_ROW, "list")])
    left = grouped.filter(pc.not_equal(grouped[f"{_SIDE}_sum"], 0))
    unmatched: list[int] = []
    for excess, rows in zip(left[f"{_SIDE}_sum"].to_pylist(), left[f"{_ROW}_list"].to_pylist(), strict=True):
        of_side = [row for row in rows if (row < len(recorded)) == (excess > 0)]
        unmatched += of_side[-abs(excess) :]
    return np.array(sorted(unmatched), np.int64)


def _plain(table: pa.Table) -> pa.Table:
    """Return a table whose columns can be grouped by: lists of texts as one text each."""
    for index, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            table = table.set_column(index, field.name, pc.binary_join(table.column(index), _SEPARATOR))
    return table


def _paired(output: str, recorded: Iterable[ComparedRow], replayed: Iterable[ComparedRow]) -> Iterator[RowDifference]:
    """Pair rows of both sides that are about the same, and yield those that differ or have no other."""
    about = identity_of(output)
    others: dict[tuple[Any, ...], list[ComparedRow]] = {}
    for row in replayed:
        others.setdefault(tuple(row[name] for name in about), []).append(row)
    for row in recorded:
        same = others.get(tuple(row[name] for name in about))
        if not same:
            yield RowDifference(output, "recorded_only", (), row, None)
            continue
        other = same.pop(0)
        fields = tuple(name for name in row if not _is_same(row[name], other[name]))
        if fields:
            yield RowDifference(output, "different", fields, row, other)
    for row in (row for same in others.values() for row in same):
        yield RowDifference(output, "replayed_only", (), None, row)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same; of objects as JSON the values count, not how they are written."""
    if one == other:
        return True
    if not (isinstance(one, str) and isinstance(other, str) and one[:1] in ("{", "[") and other[:1] == one[:1]):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


class ColdKeys:
    """The rules and keys of which a row differs that says `warm: false`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._keys: set[tuple[str, str]] = set()

    def note(self, differences: Iterable[RowDifference]) -> None:
        """Take differences into account."""
        cold_rows = (difference.row for difference in differences if difference.is_cold)
        self._keys.update((row["rule_id"], row["key"]) for row in cold_rows if "rule_id" in row)

    def note_evaluations(self, evaluations: pa.Table, missing: set[tuple[str, str, str]]) -> None:
        """Note which missing alerts (rule, event, key) are of windows that were incomplete when scored again."""
        cold = evaluations.filter(pc.invert(evaluations["warm"])).select(["rule_id", "event_id", "key"])
        self._keys.update((row["rule_id"], row["key"]) for row in cold.to_pylist() if tuple(row.values()) in missing)

    def explain(self, difference: RowDifference, rule: Rule | None) -> bool:
        """Return whether a difference follows from an eviction; `rule` is that of the row, None if there was none."""
        if difference.is_cold or not self._keys or rule is None:
            return difference.is_cold
        if rule.on == "alerts":
            return True
        goes_by_alerts = difference.output != columns.EVALUATIONS or rule.reset_on_alert
        return goes_by_alerts and (difference.row["rule_id"], difference.row["key"]) in self._keys

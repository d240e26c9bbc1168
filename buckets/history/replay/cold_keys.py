"""Keys that the job and a replay have evicted at other moments, and the differences that follow from that.

Rows differ where one side says `warm: false`, or because another row does so: alerts of the same rule and key, of which
policies remember others, and all of rules over alerts.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from buckets.history.replay.differences import RowDifference
from buckets.outputs import columns
from buckets.rules.rule import Rule


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

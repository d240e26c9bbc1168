"""How many alerts rules have, from results."""

from dataclasses import dataclass
from pathlib import Path

from buckets.delta.query import in_ms, is_between, is_in, is_table, query
from buckets.duration import DAY_MS
from buckets.moment import TimeRange
from buckets.outputs.recorded_outputs import RAISED, has_output


def has_alerts(folder: Path) -> bool:
    """Return whether a folder has an output of alerts, with rows or without."""
    return any(has_output(folder, output) for output in RAISED)


@dataclass(frozen=True)
class AlertCount:
    """How many alerts a rule has.

    Attributes:
        alerts: their number.
        keys: how many keys have one.
        first_ms: the event time of the first, in ms; None where there is none.
        last_ms: that of the last.
    """

    alerts: int
    keys: int
    first_ms: int | None
    last_ms: int | None


def count_alerts(table: Path, rule_id: str) -> AlertCount:
    """Count the alerts of a rule in a Delta table, without reading more than two columns of them."""
    times = "min(event_time) as first_ms, max(event_time) as last_ms"
    counts = f"select count(*) as alerts, count(distinct key) as keys, {times} from rows"
    (found,) = in_ms(query(table, f"{counts} where {is_in('rule_id', [rule_id])}", f"results {table}")).to_pylist()
    return AlertCount(**found)


def rules_with_alerts(folder: Path) -> list[str]:
    """Return the ids of the rules that have alerts in a folder; for messages, and only of tables."""
    tables = [folder / output for output in RAISED if is_table(folder / output)]
    asked = (query(table, "select distinct rule_id from rows", f"results {table}") for table in tables)
    return sorted({rule_id for found in asked for rule_id in found["rule_id"].to_pylist()})


def alerts_by_day(table: Path, days: int) -> dict[str, dict[int, int]]:
    """Count the alerts of each rule on the latest days with alerts of a Delta table, by event time.

    Args:
        table: the table; one that is not there has none.
        days: how many days, up to that of the latest alert.

    Returns:
        By rule id and number of the day since 1970.
    """
    if not is_table(table):
        return {}
    named = f"results {table}"
    (latest,) = in_ms(query(table, "select max(event_time) as ms from rows", named)).to_pylist()
    if latest["ms"] is None:
        return {}
    since = TimeRange((latest["ms"] // DAY_MS - days + 1) * DAY_MS, None)
    tests = " and ".join(is_between("event_time", since))
    counted = query(
        table,
        "select rule_id, date_trunc('day', event_time) as event_day, count(*) as alerts from rows "
        f"where {tests} group by rule_id, event_day",
        named,
    )
    found: dict[str, dict[int, int]] = {}
    for row in in_ms(counted).to_pylist():
        found.setdefault(row["rule_id"], {})[row["event_day"] // DAY_MS] = row["alerts"]
    return found

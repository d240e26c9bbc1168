"""What a job has recorded of its batches: the accounts of each, all groups together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buckets.delta.query import in_ms, is_table, query
from buckets.outputs.columns import BATCHES, DEAD_LETTERS

_SUMS = ("evaluated", "late", "too_late", "duplicates", "collisions_not_kept", "alerts", "held_alerts")
"""Each event is counted in every group, so sums are of events and groups; `events` is of events."""


def latest_batches(folder: Path, most: int, before: int | None = None) -> list[dict[str, Any]]:
    """Return the latest batches, those before a batch if one is given, newest first; none where nothing is recorded."""
    table = folder / BATCHES
    if not is_table(table):
        return []
    older = "" if before is None else f" where batch_id < {before}"
    sums = ", ".join(f'sum("{name}") as "{name}"' for name in _SUMS)
    fields = "max(ruleset_version) as ruleset_version, max(events_in) as events, max(latest_event_time) as latest"
    rows = query(
        table,
        f"select batch_id, {fields}, {sums} from rows{older} group by batch_id order by batch_id desc limit {most}",
        f"results {table}",
    )
    found: list[dict[str, Any]] = in_ms(rows).to_pylist()
    return found


def totals(folder: Path) -> dict[str, int]:
    """Return how many batches and events there are, and what became of them."""
    table = folder / BATCHES
    if not is_table(table):
        return {}
    sums = ", ".join(f'sum("{name}") as "{name}"' for name in _SUMS)
    of_batch = f"select batch_id, max(events_in) as events, {sums} from rows group by batch_id"
    names = ", ".join(f'sum("{name}") as "{name}"' for name in ("events", *_SUMS))
    (found,) = query(
        table,
        f"select count(*) as batches, max(batch_id) as last, {names} from ({of_batch}) as one",
        f"results {table}",
    ).to_pylist()
    return {name: int(value or 0) for name, value in found.items()} | {"dead_letters": _rows_of(folder / DEAD_LETTERS)}


def recorded_line(found: Mapping[str, int]) -> str:
    """Say of a job that tells nothing of itself what is recorded of it, by its totals."""
    return f"no job runs now; {found['batches']:,} batches are recorded"


def groups_of_batch(folder: Path, batch_id: int) -> list[dict[str, Any]]:
    """Return the account of each group in a batch."""
    table = folder / BATCHES
    rows = query(table, f'select * from rows where batch_id = {batch_id} order by "group"', f"results {table}")
    found: list[dict[str, Any]] = in_ms(rows).to_pylist()
    return found


def _rows_of(table: Path) -> int:
    if not is_table(table):
        return 0
    (found,) = query(table, "select count(*) as rows from rows", f"results {table}").to_pylist()
    return int(found["rows"])

"""Ids of alerts in short, as git shortens those of commits: as many characters as name one alert among all of a job."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from buckets.delta.query import sql_text
from buckets.errors import BucketsError
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, output_batches, output_rows
from buckets.printable import quoted

_FEWEST = 8
_SHOWN = 3


def short_length(folder: Path) -> int:
    """Return how many characters of an id name one alert among all that are in a folder; at least eight.

    Raises:
        BucketsError: a table cannot be read.
    """
    ids = sorted(set(_all_ids(folder)))
    shared = (_shared(one, other) for one, other in pairwise(ids))
    return max(_FEWEST, 1 + max(shared, default=0))


def full_alert_id(folder: Path, text: str) -> str:
    """Return the id of the one alert whose id begins with a text; the text itself if there is none.

    Raises:
        BucketsError: several begin with it and none is equal to it, or a table cannot be read.
    """
    alerts: dict[str, str] = {}
    begins = Selection(tests=[f"starts_with(alert_id, {sql_text(text)})"])
    for output in ALERT_OUTPUTS:
        for batch in output_batches(folder / output, ("alert_id", "rule_id", "event_id"), begins):
            for row in batch.to_pylist():
                alerts.setdefault(row["alert_id"], f"{row['rule_id']} at event {quoted(row['event_id'])}")
    if text in alerts or not alerts:
        return text
    first, *others = sorted(alerts)
    if not others:
        return first
    length = 1 + max(_shared(one, other) for one, other in pairwise([first, *others]))
    shown = [f"{alert_id[:length]} ({alerts[alert_id]})" for alert_id in [first, *others][:_SHOWN]]
    more = f" and {len(alerts) - _SHOWN:,} more" if len(alerts) > _SHOWN else ""
    message = (
        f"alert {quoted(text)} is ambiguous: {len(alerts):,} ids in {folder} begin with it, {', '.join(shown)}{more}; "
        "give more of the id"
    )
    raise BucketsError(message)


def _all_ids(folder: Path) -> Iterator[str]:
    for output in ALERT_OUTPUTS:
        for row in output_rows(folder, output, ("alert_id",)):
            yield row["alert_id"]


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginnings."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))

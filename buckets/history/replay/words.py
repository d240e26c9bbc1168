"""What a replay has found, in words."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from buckets.history.replay.differences import RowDifference
from buckets.history.replay.replayed import Replayed
from buckets.moment import iso_text, moment_ms, time_text

_KINDS = {
    "recorded_only": "recorded, did not come out again",
    "replayed_only": "came out, is not recorded",
    "different": "came out with other fields",
}


def difference_words(difference: RowDifference) -> str:
    """Return what differs in a row: a line of what it is about, and one for each field that is another."""
    row = difference.row
    time = time_text(moment_ms(row["event_time"]))
    about = f"event {row['event_id']} ({time})"
    if "rule_id" in row:
        result = f"alert {row['alert_id']}" if "alert_id" in row else "evaluation"
        about = f"{result} of rule {row['rule_id']} at {about}"
    text = f"{difference.output}: {about}: {_KINDS[difference.kind]}"
    recorded, replayed = difference.recorded or {}, difference.replayed or {}
    for name in difference.fields:
        text += f"\n  {name}: recorded {_shown(recorded[name])}, came out {_shown(replayed[name])}"
    return text


def conclusion(replayed: Replayed, output_kind: str) -> list[str]:
    """Return what follows from a replay of a job with a kind of output, line by line."""
    cut = "batch by batch" if replayed.cut_as == "recorded" else "small batches joined"
    lines = [f"{replayed.events:,} arrivals of {replayed.batches:,} batches were scored, {cut}"]
    if replayed.eviction:
        lines.append(
            f"{replayed.eviction:,} of the differences are of windows that were not complete (warm: false), or follow "
            "from those: a replay with joined batches, or of a job with a backfill or an import, evicts idle keys at "
            "another moment"
        )
    if output_kind == "kafka" and replayed.counts["replayed_only"]:
        lines.append("an alert that came out and is not recorded may be one that `buckets audit` has not read yet")
    if replayed.not_compared is not None:
        lines.append(f"batches up to {replayed.not_compared:,} are written, and not all of them are archived")
    lines.append("equal: all that is recorded came out again, and nothing else" if replayed.is_equal else "not equal")
    return lines


def _shown(value: Any) -> Any:
    """Return a value of a row as text shows it."""
    if isinstance(value, datetime):
        return iso_text(moment_ms(value))
    return format(value, "f") if isinstance(value, Decimal) else value

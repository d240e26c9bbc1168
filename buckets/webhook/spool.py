"""Alerts that wait for delivery, in the checkpoint: one file per batch, and the position of delivery.

    CHECKPOINT/buckets/webhook/00000000000000000017.jsonl   the alerts of a batch, one per line
    CHECKPOINT/buckets/webhook/position.json                the batch being delivered, the line up to which all of its
                                                            alerts are settled, and those settled beyond that line
    CHECKPOINT/buckets/webhook/undelivered.jsonl            alerts that were given up, each with the reason

A batch's file exists before the batch counts as written, and an alert is settled once it was accepted, or is in the
last file. So a process that is killed loses no alert, and may deliver some again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.checkpoint.record_files import NumberedRecords, RecordFiles
from buckets.files import append_whole, write_whole
from buckets.json_text import write_json
from buckets.outputs.messages import Message


@dataclass(frozen=True)
class WaitingAlert:
    """An alert that waits for delivery."""

    batch_id: int  # its batch
    line: int  # its line number in the batch's file, from 0
    message_id: str  # its id
    key: str  # alerts of one key are delivered in order
    decided_ms: int  # when it was raised
    body: str  # its JSON


class Spool:
    """The waiting alerts of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Read the position of delivery; BucketsError if its record is damaged."""
        self._records = RecordFiles(checkpoint)
        folder = self._records.folder / "webhook"
        self._batches = NumberedRecords(self._records, folder, ".jsonl", digits=20)
        self._file, self.undelivered = folder / "position.json", folder / "undelivered.jsonl"
        self._settled, self._beyond = self._records.read_if_there(self._file, _position) or ((-1, 0, ""), {})

    def put(self, batch_id: int, decided_ms: int, alerts: Iterable[Message]) -> int:
        """Store the alerts of a batch, again if the batch is rerun, and return how many there are."""
        lines = [
            json.dumps({"id": alert.identity, "key": alert.key, "decided_ms": decided_ms, "body": alert.value})
            for alert in alerts
        ]
        if lines and batch_id >= self._settled[0]:
            write_whole(self._batches.file(batch_id), "".join(f"{line}\n" for line in lines))
        return len(lines)

    def batches(self) -> list[int]:
        """Return the batches that have alerts, in order."""
        return self._batches.numbers()

    def begin(self, batch_id: int) -> list[WaitingAlert]:
        """Return the unsettled alerts of a batch, and make it the batch that is being settled."""
        is_known, alerts = self._waiting(batch_id)
        if not is_known:
            self._settled, self._beyond = (batch_id, 0, ""), {}
        return alerts

    def waiting(self, batch_id: int) -> list[WaitingAlert]:
        """Return the unsettled alerts of a batch."""
        return self._waiting(batch_id)[1]

    def count(self) -> int:
        """Return the number of waiting alerts."""
        return sum(len(self.waiting(batch_id)) for batch_id in self.batches())

    def _waiting(self, batch_id: int) -> tuple[bool, list[WaitingAlert]]:
        """Return whether the settled position refers to this batch's alerts, and the unsettled ones.

        A batch that was abandoned with its topic has passed its number on to a batch with other alerts.
        """
        file = self._batches.file(batch_id)
        with self._records.reading(file):
            written = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            alerts = [
                WaitingAlert(batch_id, number, alert["id"], alert["key"], alert["decided_ms"], alert["body"])
                for number, alert in enumerate(written)
            ]
        batch, end, last_id = self._settled
        if batch != batch_id or (end and (end > len(alerts) or alerts[end - 1].message_id != last_id)):
            return False, alerts
        return True, [alert for alert in alerts[end:] if self._beyond.get(alert.line) != alert.message_id]

    def settle(self, alert: WaitingAlert) -> None:
        """Mark an alert of the current batch as settled; the next `keep` writes that."""
        self._beyond[alert.line] = alert.message_id
        batch_id, end, last_id = self._settled
        while end in self._beyond:
            last_id, end = self._beyond.pop(end), end + 1
        self._settled = batch_id, end, last_id

    def keep(self) -> None:
        """Write which alerts are settled."""
        batch_id, line, last_id = self._settled
        if batch_id >= 0:
            record = {"batch": batch_id, "line": line, "alert_id": last_id, "beyond": self._beyond}
            self._records.write(self._file, record)

    def remove(self, batch_id: int) -> None:
        """Delete a batch whose alerts are all recorded as settled."""
        self._batches.remove(batch_id)

    def give_up(self, alert: WaitingAlert, reason: str, at_ms: int) -> None:
        """Append an alert to the undelivered ones."""
        record = {"alert_id": alert.message_id, "reason": reason, "given_up_ms": at_ms, "alert": json.loads(alert.body)}
        append_whole(self.undelivered, (write_json(record) + "\n").encode())


def _position(record: dict[str, Any]) -> tuple[tuple[int, int, str], dict[int, str]]:
    beyond = {int(line): str(alert_id) for line, alert_id in record["beyond"].items()}
    return (int(record["batch"]), int(record["line"]), str(record["alert_id"])), beyond

"""What asks a running job to fill in the history of a rule: a file in its checkpoint for each rule.

CHECKPOINT/buckets/backfill_requests/<hash of the rule_id>.json   removed once a version of the rules has it
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.checkpoint.record_files import RecordFiles
from buckets.rules.rule import Rule


@dataclass(frozen=True)
class BackfillRequest:
    """A request of an author, made at `time` (ms since the epoch); the rule is or will be in force."""

    rule: Rule
    author: str
    reason: str
    time: int


class BackfillRequests:
    """The requests in a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._records = RecordFiles(checkpoint, "remove it, and apply the rule with --backfill again")
        self._folder = self._records.folder / "backfill_requests"

    def ask(self, request: BackfillRequest) -> None:
        """Write a request, in place of an earlier one for the same rule."""
        rule = request.rule.model_dump(by_alias=True, mode="json")
        self._records.write(self._file(request.rule), vars(request) | {"rule": rule})

    def read(self) -> list[BackfillRequest]:
        """Return all requests, by the name of their rule."""
        read = (self._records.read_if_there(file, _read) for file in self._folder.glob("[!.]*.json"))
        return sorted((request for request in read if request is not None), key=lambda request: request.rule.rule_id)

    def forget(self, request: BackfillRequest) -> None:
        """Remove a request, unless another one has come in its place."""
        if request in self.read():
            self._file(request.rule).unlink(missing_ok=True)

    def _file(self, rule: Rule) -> Path:
        return self._folder / f"{hashlib.blake2b(rule.rule_id.encode(), digest_size=8).hexdigest()}.json"


def _read(record: dict[str, Any]) -> BackfillRequest:
    return BackfillRequest(**(record | {"rule": Rule.model_validate(record["rule"])}))

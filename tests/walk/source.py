"""Where the payments of a walk come from: files in a folder, or a topic of a real broker."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from buckets.checkpoint.source_offsets import spark_folder
from buckets.events.source_files import plain_path
from tests.kafka.broker import TestBroker
from tests.spark.job_folder import JobFolder

TOPIC = "payments"


class Line(NamedTuple):
    """A line of a file, or a message: where it stands, and what it is."""

    source: str
    order: int
    position: int
    raw: bytes


class Source(Protocol):
    """Takes in payments, and knows which of them lie between two offsets of Spark's log."""

    @property
    def settings(self) -> dict[str, Any]:
        """`source` of the configuration."""

    @property
    def sent(self) -> int:
        """How many files, or messages, have come."""

    def add(self, lines: Sequence[str]) -> None:
        """Some more payments."""

    def scored(self, offset: str) -> int:
        """How many files, or messages, lie before an offset."""

    def lines(self, before: str | None, after: str) -> list[Line]:
        """What lies between two offsets, in the order of arrival."""


class Files:
    """A folder of JSON lines, of which each batch takes one file."""

    def __init__(self, job: JobFolder) -> None:
        self._job = job
        self.sent = 0
        self.settings: dict[str, Any] = {"kind": "json", "path": "source", "max_files_per_trigger": 1}

    def add(self, lines: Sequence[str]) -> None:
        self.sent += 1
        self._job.add_file(self.sent, lines)

    def scored(self, offset: str) -> int:
        return len(self._until(offset))

    def lines(self, before: str | None, after: str) -> list[Line]:
        taken = 0 if before is None else self.scored(before)
        found = []
        for file in sorted(self._until(after)[taken:]):
            order = file.stat().st_mtime_ns // 1_000_000
            raw = file.read_bytes().splitlines()
            found += [Line(str(file), order, position, line) for position, line in enumerate(raw, 1)]
        return found

    def _until(self, offset: str) -> list[Path]:
        """The files of the source's own log up to an offset, in the order in which they were taken."""
        last, found = int(json.loads(offset)["logOffset"]), dict[str, int]()
        logs = (spark_folder(self._job.checkpoint) / "sources" / "0").glob("[0-9]*")
        for log in sorted(logs, key=lambda each: int(each.name.split(".")[0])):
            for line in log.read_text(encoding="utf-8").splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] <= last:
                    found[plain_path(entry["path"])] = entry["batchId"]
        return [Path(path) for path, _ in sorted(found.items(), key=lambda each: each[1])]


class Topic:
    """A topic of one partition."""

    def __init__(self, broker: TestBroker) -> None:
        self._broker = broker
        self._read: list[Line] = []
        self.sent = 0
        self.settings: dict[str, Any] = {"kind": "kafka", "topic": TOPIC, "max_offsets_per_trigger": 120}

    def add(self, lines: Sequence[str]) -> None:
        self._broker.produce(TOPIC, list(lines), partition=0)
        self.sent += len(lines)

    def scored(self, offset: str) -> int:
        return int(json.loads(offset)[TOPIC]["0"])

    def lines(self, before: str | None, after: str) -> list[Line]:
        end = self.scored(after)
        if len(self._read) < end:
            messages = self._broker.read(TOPIC)
            self._read = [Line(f"{TOPIC}[0]", 0, each.offset(), each.value()) for each in messages]
        return self._read[0 if before is None else self.scored(before) : end]

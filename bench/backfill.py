"""The delay of a job before, while and after the history of a rule is filled in.

    python bench/backfill.py --history 200000 --events 200 --every 0.4

Files of events come one after the other, each a batch. The delay of a file is the time from when it is there until
its results are written. Prints a line of JSON for each phase, and one for the fill.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from buckets.backfill.fill_chunks import read_fills
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.clock import epoch_ms
from buckets.config.job import load_job
from buckets.monitor.pace import BatchReport
from buckets.rules.rule import Rule
from buckets.spark.prepared_job import Listener, job_session, prepare

SCHEMA = {
    "name": "payment",
    "event_id": "id",
    "event_time": {"field": "at", "unit": "ms"},
    "attributes": {"payerId": "string", "beneficiaryId": "string"},
    "measures": {"amount": {"scale": 2}},
}
PAYERS, BENEFICIARIES = 10_000, 1_000
STEP_MS = 200


def rule(rule_id: str, field: str, window: str) -> dict[str, Any]:
    """A rule that does not fire."""
    return {
        "rule_id": rule_id,
        "group_by": [field],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": window},
        "limit": {"operator": ">", "value": "1000000000"},
    }


RULES = [rule(f"payer-{window}", "payerId", window) for window in ("5m", "1h", "24h")]
ASKED = rule("beneficiary-24h", "beneficiaryId", "24h")


class Source:
    """A folder that gets files of payments."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty folder."""
        self.folder = folder
        folder.mkdir()
        self._dice = random.Random(1)
        self._events = self._files = 0
        self.there_ms: dict[int, int] = {}

    def add(self, count: int) -> None:
        """Put a file there, whole at once."""
        lines = []
        for _ in range(count):
            event = {
                "id": f"e{self._events}",
                "at": 1_700_000_000_000 + self._events * STEP_MS,
                "payerId": f"p{self._dice.randrange(PAYERS)}",
                "beneficiaryId": f"b{self._dice.randrange(BENEFICIARIES)}",
                "amount": "12.34",
            }
            lines.append(json.dumps(event) + "\n")
            self._events += 1
        hidden = self.folder.parent / "partial"
        hidden.write_text("".join(lines))
        moment_s = 1_700_000_000 + self._files
        os.utime(hidden, (moment_s, moment_s))
        hidden.replace(self.folder / f"{self._files:06d}.jsonl")
        self.there_ms[self._files] = epoch_ms()
        self._files += 1


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=200_000, help="events before the fill")
    parser.add_argument("--events", type=int, default=200, help="events a file")
    parser.add_argument("--files", type=int, default=60, help="files of a phase")
    parser.add_argument("--every", type=float, default=0.4, help="seconds from file to file, at least")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), chosen)


def measure(root: Path, chosen: argparse.Namespace) -> None:
    """Run a job through all phases."""
    (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    (root / "rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    conf = {
        "source": {"kind": "json", "path": "source", "max_files_per_trigger": 1},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "archive": {"path": "archive"},
        "engine": {"shards": 2, "allowed_lateness": "1m"},
        "trigger": {"interval": "50ms"},
    }
    (root / "conf.yaml").write_text(yaml.safe_dump(conf))
    source, reports = Source(root / "source"), list[BatchReport]()
    for _ in range(4):
        source.add(chosen.history // 4)
    job = load_job(root / "conf.yaml")
    query = prepare(job).query(job_session(job), Listener(reports.append))
    running = threading.Thread(target=query.serve, args=(50,))
    running.start()
    while len(reports) < 4:
        time.sleep(0.1)

    def feed(more: Callable[[int], bool]) -> tuple[int, int]:
        first, fed = len(source.there_ms), 0
        while more(fed):
            source.add(chosen.events)
            fed += 1
            time.sleep(chosen.every)
            while len(reports) < len(source.there_ms):
                time.sleep(0.02)
        return first, len(source.there_ms)

    feed(lambda fed: fed < 10)
    phases = {"before": feed(lambda fed: fed < chosen.files)}
    (root / "rules.yaml").write_text(yaml.safe_dump({"rules": [*RULES, ASKED]}))
    phases["with the rule, cold"] = feed(lambda fed: fed < chosen.files)
    asked_s = time.monotonic()
    BackfillRequests(job.checkpoint).ask(BackfillRequest(Rule.model_validate(ASKED), "", "", epoch_ms()))
    versions = Checkpoint(job.checkpoint).versions
    phases["while it is filled"] = feed(lambda fed: not _is_whole(versions))
    filled_s = time.monotonic() - asked_s
    phases["after"] = feed(lambda fed: fed < chosen.files)
    query.stop()
    running.join()
    for name, (first, end) in phases.items():
        delays = sorted(report.written_ms - source.there_ms[report.account.batch_id] for report in reports[first:end])
        took = sorted(report.duration_s for report in reports[first:end])
        line = {
            "phase": name,
            "files": end - first,
            "delay_p50_ms": _at(delays, 0.5),
            "delay_p99_ms": _at(delays, 0.99),
        }
        print(json.dumps(line | {"batch_p50_s": round(_at(took, 0.5), 3), "load": os.getloadavg()[0]}), flush=True)
    print(json.dumps({"filled_events": chosen.history, "filled_s": round(filled_s, 1), "left": len(read_fills(root))}))


def _is_whole(versions: Any) -> bool:
    return any(change.change == "backfilled" for version in versions.history(after=1) for change in version.changes)


def _at(ordered: list[Any], share: float) -> Any:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


if __name__ == "__main__":
    main()

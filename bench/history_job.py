"""A job with a large archive, made as a user would: payments by the generator, `buckets run`, `buckets archive`.

    work/transactions/     Parquet files, half a million payments each
    work/conf.yaml         the job, with rules.yaml and schema.yaml beside it
    work/tables, archive   what it has written
    work/made.json         how large it is, and how long each step took; written last

Payments come in the order of their times, each once: SQL's windows know no other order.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from measure import ROOT
from rich.console import Console

from buckets.generator import GeneratorSettings, generate
from buckets.generator.stream import ROWS_AT_ONCE, record_batch

DAYS = 90
ROWS_PER_FILE = 500_000
FIRST_MTIME_S = 1_700_000_000
RULES: list[dict[str, Any]] = [
    {"id": "payer-sum-1h", "by": ["payerId"], "function": "sum", "window": "1h", "limit": 100_000},
    {"id": "payer-count-24h", "by": ["payerId"], "function": "count", "window": "24h", "limit": 360},
    {"id": "payer-average-30d", "by": ["payerId"], "function": "avg", "window": "30d", "limit": 3_500},
    {"id": "pair-sum-24h", "by": ["payerId", "beneficiaryId"], "function": "sum", "window": "24h", "limit": 200_000},
    {"id": "pair-count-7d", "by": ["payerId", "beneficiaryId"], "function": "count", "window": "7d", "limit": 600},
    {"id": "card-count-5m", "by": ["cardId"], "function": "count", "window": "5m", "limit": 7},
    {"id": "card-sum-30d", "by": ["cardId"], "function": "sum", "window": "30d", "limit": 2_750_000},
]
"""What is computed, and above which limit it fires."""


@dataclass(frozen=True)
class Ran:
    """A command that is done."""

    seconds: float
    memory_mb: float
    printed: str


def buckets(*arguments: object) -> Ran:
    """Run a command of the product, as a user does; if it fails, this process ends."""
    command = [sys.executable, "-c", "from buckets.cli.commands import main; main()", *map(str, arguments)]
    return run(command)


def run(command: Sequence[str]) -> Ran:
    """Run a process; if it fails, this process ends."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    started_s = time.perf_counter()
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=printed, stderr=said, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (printed, said):
            file.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(command[3:])} failed ({process.returncode}):\n{said.read()[-3000:]}")
        return Ran(seconds, used.ru_maxrss / 1024, printed.read())


def rules_yaml() -> dict[str, Any]:
    """The rules as a rule file has them."""
    rules = []
    for each in RULES:
        measure = {} if each["function"] == "count" else {"measure": "paymentAmount"}
        rules.append(
            {
                "rule_id": each["id"],
                "group_by": each["by"],
                "aggregate": {"function": each["function"]} | measure,
                "window": {"length": each["window"]},
                "limit": {"operator": ">", "value": str(each["limit"])},
            }
        )
    return {"rules": rules}


def write_payments(folder: Path, events: int, payers: int) -> None:
    """Payments in files, whose times of modification ascend."""
    settings = GeneratorSettings(
        transactions=events,
        days=DAYS,
        payers=payers,
        beneficiaries=max(payers // 10, 20),
        cards=payers * 13 // 10,
        fraud_cases=min(5, events // 1_000),
        late_rate=0,
        duplicate_rate=0,
        collision_rate=0,
    )
    payments = generate(settings).transactions
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(payments), ROWS_PER_FILE)):
        path, end = folder / f"part-{number:05d}.parquet", min(start + ROWS_PER_FILE, len(payments))
        with pq.ParquetWriter(path, record_batch(payments.take(slice(0, 0))).schema) as file:
            for first in range(start, end, ROWS_AT_ONCE):
                file.write_batch(record_batch(payments.take(slice(first, min(first + ROWS_AT_ONCE, end)))))
        os.utime(path, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))


def make_job(work: Path, events: int, payers: int, console: Console) -> dict[str, Any]:
    """The job in a folder, made unless it is there in this size; what `made.json` says of it."""
    made = work / "made.json"
    size = {"events": events, "payers": payers, "days": DAYS, "rules": rules_yaml()}
    if made.exists():
        found: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
        if found["size"] == size:
            return found
    payments = work / "transactions"
    if work.exists() and any(work.iterdir()) and not payments.exists():
        sys.exit(f"--work {work}: holds something else; name an empty folder, or one that this benchmark has made")
    shutil.rmtree(work, ignore_errors=True)
    console.print(f"making {events:,} payments and their archive in {work}", highlight=False)
    started_s = time.perf_counter()
    write_payments(payments, events, payers)
    seconds = {"generate": time.perf_counter() - started_s}
    conf = {
        "source": {"kind": "parquet", "path": "transactions", "max_files_per_trigger": 2},
        "schema": str(ROOT / "schemas" / "transaction.yaml"),
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "archive": {"path": "archive"},
        "trigger": {"available_now": True},
    }
    for name, content in (("conf", conf), ("rules", rules_yaml())):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for command in ("run", "archive"):
        seconds[command] = buckets(command, work / "conf.yaml").seconds
        console.print(f"  buckets {command}: {seconds[command]:,.0f} s", highlight=False)
    found = {"size": size, "seconds": seconds}
    made.write_text(json.dumps(found), encoding="utf-8")
    return found

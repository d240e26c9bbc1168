"""The two sides that most benchmarks compare: the product's query, and the bare prototype of the same path."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from measure import HERE, Batches, Side, child, read_batches
from trial import FILES_PER_BATCH, SHARDS, Trial

PROTOTYPE = HERE.parent.parent / "shared" / "prototype" / "prototype.py"
"""Four aggregates over five windows, with no policies, ids, rules, dead letters or accounts.

`all` puts everything out as one row an event, `alerts` a short row for each event whose sum is above a limit of its own
(from about 20 events in the window on, nearly every event); both to a sink that throws the rows away.
"""


def ours(name: str, trial: Trial) -> Side:
    """The product's query."""

    def run(work: Path) -> Batches:
        printed = child([str(HERE / "ours.py"), json.dumps(asdict(trial)), str(work / "ours")])
        return read_batches(printed)

    return Side(name, run)


def prototype(name: str, script: Path, data: Path, emit: str) -> Side:
    """The prototype with state requests sent ahead; `emit` is `all` or `alerts`."""

    def run(work: Path) -> Batches:
        printed = child([str(script), str(data), str(SHARDS), "pipe", emit, str(FILES_PER_BATCH), str(work / "state")])
        lines = re.findall(r"^R \S+ (\d+) (\d+) (\d+) ", printed, re.MULTILINE)
        return [{"batch": int(batch), "events": int(events), "ms": int(ms)} for batch, events, ms in lines]

    return Side(name, run)

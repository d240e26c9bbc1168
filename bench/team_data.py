"""What a fraud team has: payments with many fields, and rules over many of them and over pairs.

Cardinalities are those of a middling bank. A thousand busy payers make 40 % of the payments; card, device, mail, phone
and account follow the payer; beneficiaries and merchants are skewed.
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

FIELDS = (
    "payer", "card", "beneficiary", "device", "address", "merchant", "mail", "phone", "account", "country"
)  # fmt: skip
GROUPINGS: tuple[tuple[str, ...], ...] = (
    ("payer",), ("card",), ("beneficiary",), ("device",), ("payer", "beneficiary"), ("merchant",), ("address",),
    ("mail",), ("phone",), ("account",), ("country",), ("card", "merchant"), ("device", "country"),
)  # fmt: skip
"""In the order in which they are taken, so that five of them are what most teams have."""
WINDOWS = ("24h", "1h", "6h", "10m", "24h", "5m", "12h", "1h", "30m", "6h", "5m", "3h", "15m")
FUNCTIONS = ("sum", "count", "sum", "max", "sum", "count", "avg", "count", "sum", "sum", "count", "sum", "count")
LIMITS = (
    120_000_000, 40, 5_000_000_000, 499_990, 9_000_000, 400, 499_000,
    40, 6_000_000, 40_000_000, 1_300, 3_000_000, 8,
)  # fmt: skip
"""Of each grouping, so that few payments pass one."""
PAYERS, BUSY, BUSY_SHARE = 50_000, 1_000, 0.4
START_MS, SPAN_MS = 1_700_000_000_000, 86_400_000
PAYMENTS = 1_000_000
"""So many fill the span."""
FIRST_ROWS = 100_000
"""Rows of the first batch, which is not measured: it finds no state."""
SHARDS = 8
SCHEMA = {
    "name": "team",
    "event_id": "event_id",
    "event_time": {"field": "ts", "unit": "ms"},
    "attributes": dict.fromkeys(FIELDS, "string"),
    "measures": {"amount": {"scale": 0}},
}


@dataclass(frozen=True)
class Team:
    """A job of the team.

    Attributes:
        groupings: how many of `GROUPINGS` have a rule.
        batch_rows: rows of each micro-batch but the first.
        batches: how many micro-batches there are after the first.
        first_rows: rows of the first.
    """

    groupings: int
    batch_rows: int
    batches: int
    first_rows: int = FIRST_ROWS


def _skewed(random: np.random.Generator, count: int, rows: int) -> npt.NDArray[np.int64]:
    """Numbers up to `count`, the low ones more often."""
    return np.asarray((random.random(rows) ** 3 * count).astype(np.int64))


def _follow(random: np.random.Generator, payer: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """A field of `count` values that belongs to the payer; where there are more than payers, some have two."""
    second = (random.random(len(payer)) < 0.3) & (payer < count - PAYERS)
    return np.where(second, payer + PAYERS, payer % count)


def payments(rows: int) -> pa.Table:
    """Payments in order of time; `off` is the arrival order."""
    random = np.random.default_rng(7)
    busy = random.random(rows) < BUSY_SHARE
    payer = np.where(busy, random.integers(0, BUSY, rows), random.integers(0, PAYERS, rows))
    numbers = {
        "payer": payer,
        "card": _follow(random, payer, 60_000),
        "beneficiary": _skewed(random, 5_000, rows),
        "device": _follow(random, payer, 80_000),
        "address": _follow(random, payer, 40_000),
        "merchant": _skewed(random, 2_000, rows),
        "mail": _follow(random, payer, 50_000),
        "phone": _follow(random, payer, 50_000),
        "account": _follow(random, payer, 30_000),
        "country": _skewed(random, 50, rows),
    }
    columns = {name: pa.array(np.char.add(f"{name[:2]}-", each.astype("U"))) for name, each in numbers.items()}
    span_ms = SPAN_MS * rows // PAYMENTS
    return pa.table(
        {
            "event_id": pa.array([f"e{row}" for row in range(rows)]),
            "ts": pa.array(START_MS + np.sort(random.integers(0, span_ms, rows))),
            "amount": pa.array(random.integers(100, 500_000, rows)),
            "off": pa.array(np.arange(rows)),
            **columns,
        }
    )


def _write_files(team: Team, folder: Path) -> None:
    """A file for each micro-batch, a second apart in their modification times."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cuts = [0, *(team.first_rows + batch * team.batch_rows for batch in range(team.batches + 1))]
    table, first_s = payments(cuts[-1]), int(time.time()) - len(cuts)
    for file, (start, end) in enumerate(pairwise(cuts)):
        path = folder / f"{file:05d}.parquet"
        pq.write_table(table.slice(start, end - start), path)
        os.utime(path, (first_s + file, first_s + file))


def rule_id(function: str, fields: Sequence[str]) -> str:
    """The name of the rule over a grouping."""
    return f"{function}-by-{'-'.join(fields)}"


def team_rules(groupings: int) -> Sequence[dict[str, object]]:
    """Return the rules over so many of the groupings."""
    chosen = list(zip(GROUPINGS, WINDOWS, FUNCTIONS, LIMITS, strict=True))[:groupings]
    return [
        {
            "rule_id": rule_id(function, fields),
            "group_by": list(fields),
            "aggregate": {"function": function} | ({} if function == "count" else {"measure": "amount"}),
            "window": {"length": window},
            "limit": {"operator": ">", "value": limit},
        }
        for fields, window, function, limit in chosen
    ]


def write_team(team: Team, work: Path) -> Path:
    """Write the job's data, schema, rules and configuration; the configuration's path."""
    _write_files(team, work / "data")
    return write_job(work, SCHEMA, team_rules(team.groupings))


def write_job(work: Path, schema: Mapping[str, object], rules: Sequence[Mapping[str, object]]) -> Path:
    """Write schema, rules and configuration of a job over the files of `data`; the configuration's path."""
    conf = {
        "source": {"kind": "parquet", "path": "data", "max_files_per_trigger": 1, "arrival": "off"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "engine": {"shards": SHARDS},
    }
    for name, content in (("schema", dict(schema)), ("rules", {"rules": list(rules)}), ("conf", conf)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return work / "conf.yaml"

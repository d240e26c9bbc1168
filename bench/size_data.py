"""Jobs for `size.py`: keys are uniform in each grouping, so that what a batch does is known beforehand."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

START_MS = 1_700_000_000_000
FUNCTIONS = ("sum", "max", "count", "avg")
UNCOMPILED = {"spark.driver.extraJavaOptions": "-XX:-UseDynamicNumberOfCompilerThreads"}
"""Compilers keep their threads, so that what they have taken is known to the end."""
Stage = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """A job and its batches.

    Attributes:
        name: what it is called in tables.
        groupings: how many fields there are, with a group each.
        keys: of each of them.
        shards: of the engine.
        stages: rows of a batch and how many such batches there are, one after the other; they are measured.
        tasks: that score at once.
        features: of a rule of each grouping; 1: a rule in the short form.
        kind: of the source.
        window: of all features.
        gap_ms: event time between two payments.
        lateness: that is allowed.
        state: bounds of the log and of the cache, in MiB; as the product has them where it is None.
        held_out: not fitted, but predicted.
    """

    name: str
    groupings: int
    keys: int
    shards: int
    stages: tuple[Stage, ...]
    tasks: int = 2
    features: int = 1
    kind: str = "parquet"
    window: str = "24h"
    gap_ms: int = 1
    lateness: str = "1h"
    state: tuple[int, int] | None = None
    held_out: bool = False

    @property
    def fields(self) -> list[str]:
        """The fields by which it groups."""
        return [f"field{number:02d}" for number in range(self.groupings)]

    @property
    def batches(self) -> list[int]:
        """The rows of each batch; the first ones bring every key once."""
        return [self.keys, *(rows for rows, count in self.stages for _ in range(count))]


def _rules(shape: Shape) -> list[dict[str, object]]:
    """A rule of each grouping, none of which fires."""
    rules: list[dict[str, object]] = []
    for number, name in enumerate(shape.fields):
        if shape.features == 1:
            rules.append(
                {
                    "rule_id": f"rule-{name}",
                    "group_by": [name],
                    "aggregate": {"function": "sum", "measure": "amount"},
                    "window": {"length": shape.window},
                    "limit": {"operator": ">", "value": 10**15},
                }
            )
            continue
        features = {
            f"f{each}": {"function": FUNCTIONS[each % 4], "window": shape.window if each < 4 else "1h"}
            | ({} if each % 4 == 2 else {"of": "amount"})
            for each in range(shape.features)
        }
        rules.append(
            {
                "rule_id": f"rule-{name}",
                "group_by": [name],
                "features": features,
                "when": f"f0 > {10**15 + number} AND f1 > 3 * f{shape.features - 1}",
            }
        )
    return rules


def _table(shape: Shape, batch: int, first: int, rows: int) -> pa.Table:
    """The payments of a batch."""
    random = np.random.default_rng([batch, rows, shape.groupings])
    numbers = np.arange(first, first + rows)
    columns = {}
    for name in shape.fields:
        keys = random.permutation(shape.keys) if batch == 0 else random.integers(0, shape.keys, rows)
        columns[name] = pa.array(np.char.add("k-", np.char.zfill(keys.astype("U"), 14)))
    return pa.table(
        {
            "event_id": pa.array(np.char.add("e-", np.char.zfill(numbers.astype("U"), 14))),
            "ts": pa.array(START_MS + numbers * shape.gap_ms),
            "amount": pa.array(random.integers(100, 500_000, rows)),
            "off": pa.array(numbers),
            **columns,
        }
    )


def write_shape(shape: Shape, work: Path) -> Path:
    """Write data, schema, rules and configuration of a job; the configuration's path."""
    data = work / "data"
    data.mkdir(parents=True)
    first, begun_s = 0, int(time.time()) - len(shape.batches) - 10
    for batch, rows in enumerate(shape.batches):
        table, path = _table(shape, batch, first, rows), data / f"{batch:05d}.{shape.kind}"
        if shape.kind == "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.drop_columns(["off"]).to_pylist()))
        else:
            pq.write_table(table, path)
        os.utime(path, (begun_s + batch, begun_s + batch))
        first += rows
    schema = {
        "name": "sized",
        "event_id": "event_id",
        "event_time": {"field": "ts", "unit": "ms"},
        "attributes": dict.fromkeys(shape.fields, "string"),
        "measures": {"amount": {"scale": 0}},
    }
    source = {"kind": shape.kind, "path": "data", "max_files_per_trigger": 1}
    conf = {
        "source": source | ({} if shape.kind == "json" else {"arrival": "off"}),
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "partitions": shape.tasks,
        "engine": {"shards": shape.shards, "allowed_lateness": shape.lateness},
        "spark": UNCOMPILED | {"spark.sql.streaming.numRecentProgressUpdates": 10_000},
    }
    if shape.state is not None:
        conf["state"] = dict(zip(("log", "cache"), (f"{size}MiB" for size in shape.state), strict=True))
    for name, content in (("schema", schema), ("rules", {"rules": _rules(shape)}), ("conf", conf)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return work / "conf.yaml"

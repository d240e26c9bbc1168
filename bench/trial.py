"""One run of the product over steady data: what is offered, what is computed, where results go.

A benchmark passes it as JSON to `ours.py`, which writes the job's configuration from it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml
from steady import AMOUNTS, key_column

FIVE = ("sum", "count", "avg", "min", "max")
SHARDS = 8
FILES_PER_BATCH = 2
LIMITS = {
    "sum": (">", 10**15),
    "count": (">", 10**9),
    "avg": (">", 500_000),
    "min": ("<", 0),
    "max": (">", AMOUNTS[1]),
}
"""Only the maximum is ever passed, by the planted events: few alerts, but some in every large micro-batch."""


@dataclass(frozen=True)
class Trial:
    """A run of the product.

    Attributes:
        data: folder of steady data.
        functions: aggregates; there are rules for each of them and each window.
        windows: lengths, such as `1h`.
        limits: how many rules there are for a function and a window, which differ in their limits alone.
        groupings: over how many columns of keys these are spread; no more than there are limits.
        sink: `alerts` is the main job as it is, with alerts and accounts in Delta tables; `evaluations` computes a row
            for every event and rule and throws it away; `discarded` has alerts only, and throws them away.
        files_per_batch: how many files a micro-batch takes.
        shards: of the engine.
        precision: the engine's setting of that name; empty for its default.
        kind: of the files of data; lines of JSON come in the order in which they stand.
    """

    data: str
    functions: tuple[str, ...] = FIVE
    windows: tuple[str, ...] = ("1h",)
    limits: int = 1
    groupings: int = 1
    sink: Literal["alerts", "evaluations", "discarded"] = "discarded"
    files_per_batch: int = FILES_PER_BATCH
    shards: int = SHARDS
    precision: dict[str, object] = field(default_factory=dict)
    kind: Literal["parquet", "json"] = "parquet"


def _rules(trial: Trial) -> list[dict[str, object]]:
    return [
        {
            "rule_id": f"{function}-{window}-{number}",
            "group_by": [key_column(number % trial.groupings)],
            "aggregate": {"function": function, "measure": "amount"},
            "window": {"length": window},
            "limit": {"operator": LIMITS[function][0], "value": _limit(function, number)},
        }
        for window in trial.windows
        for function in trial.functions
        for number in range(trial.limits)
    ]


def _limit(function: str, number: int) -> int:
    """The limit of one of several rules; the first has that of `LIMITS`, the others are passed by nothing either."""
    operator, limit = LIMITS[function]
    return limit + number if operator == ">" else limit - number


def write_conf(trial: Trial, work: Path) -> Path:
    """Write the configuration of the job, its schema and its rules; the configuration's path."""
    schema = {
        "name": "steady",
        "event_id": "event_id",
        "event_time": {"field": "ts", "unit": "ms"},
        "attributes": {key_column(number): "string" for number in range(trial.groupings)},
        "measures": {"amount": {"scale": 0}},
    }
    source = {"kind": trial.kind, "path": trial.data, "max_files_per_trigger": trial.files_per_batch}
    if trial.kind == "parquet":
        source["arrival"] = "off"
    conf = {
        "source": source,
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables", "evaluations": trial.sink == "evaluations"},
        "engine": {"shards": trial.shards} | ({"precision": dict(trial.precision)} if trial.precision else {}),
    }
    for name, content in (("schema", schema), ("rules", {"rules": _rules(trial)}), ("conf", conf)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return work / "conf.yaml"

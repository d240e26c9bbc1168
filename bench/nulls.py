"""Does a rule find the same beside others, when every field is null in some events? A million rows, five groupings.

Every field but id and time is null in 2 % of the rows. Eight rules over five groupings are scored together and each by
itself, in one process. Of each rule the alerts have to be the same, in all columns.

    python bench/nulls.py [--rows 1000000] [--share 0.02] [--quick]

It prints, of each rule, how many alerts it raises alone and beside the others, how many rows it never sees, and how
many alerts are left with `nulls: strict`, where a null in a field of one rule takes the row from all. The exit code
is 1 if a rule differs.
"""

import argparse
import json
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": dict.fromkeys(("payer", "card", "merchant", "country"), "string"),
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 2}},
    }
)
KEYS = {"payer": 20_000, "card": 30_000, "merchant": 2_000, "country": 40}
QUICK_ROWS = 20_000
SEED = 11


def simple(rule_id: str, group_by: list[str], function: str, measure: str | None, length: str, above: str) -> Rule:
    """A rule of one aggregate."""
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": group_by,
            "aggregate": {"function": function, "measure": measure},
            "window": {"length": length},
            "limit": {"operator": ">", "value": above},
        }
    )


RULES = [
    simple("payer-sum", ["payer"], "sum", "amount", "1h", "900"),
    simple("card-average", ["card"], "avg", "amount", "1h", "380"),
    simple("merchant-largest", ["merchant"], "max", "fee", "10m", "9.9"),
    simple("merchant-count", ["merchant"], "count", None, "10m", "90"),
    simple("country-sum", ["country"], "sum", "fee", "10m", "13300"),
    simple("payer-at-merchant", ["payer", "merchant"], "sum", "amount", "6h", "390"),
    Rule.model_validate(
        {
            "rule_id": "spike",
            "group_by": ["payer"],
            "features": {
                "last": {"function": "last", "of": "amount", "window": "6h"},
                "middle": {"function": "median", "of": "amount", "window": "6h"},
                "cards": {"function": "count_distinct", "of": "card", "window": "6h"},
            },
            "when": "cards >= 3 AND last > 3 * middle",
        }
    ),
    Rule.model_validate(
        {
            "rule_id": "payer-beside-merchant",
            "group_by": ["payer"],
            "features": {
                "mine": {"function": "sum", "of": "amount", "window": "1h"},
                "theirs": {"function": "avg", "of": "amount", "window": "10m", "group_by": ["merchant"]},
            },
            "when": "mine > 4 * theirs OR theirs IS NULL AND mine > 700",
        }
    ),
]


def payments(rows: int, share: float) -> pa.Table:
    """Payments in order, of which each field is null in a share."""
    dice = np.random.default_rng(SEED)

    def nulls() -> np.ndarray:
        return dice.random(rows) < share

    found = {
        "id": pa.array(np.arange(rows).astype(str)),
        "at": pa.array(1_700_000_000_000 + np.cumsum(dice.integers(0, 40, rows))),
    }
    for field, keys in KEYS.items():
        names = np.char.add(field[0], (keys * dice.random(rows) ** 1.5).astype(np.int64).astype(str))
        found[field] = pa.array(names, pa.string(), mask=nulls())
    for field, most in (("amount", 40_000), ("fee", 1_000)):
        cents = pa.array(dice.integers(1, most, rows), mask=nulls())
        found[field] = pa.array([None if each is None else f"{each / 100:.2f}" for each in cents.to_pylist()])
    return pa.table(found)


def alerts_of(rules: list[Rule], events: pa.Table, engine: EngineSettings) -> tuple[dict[str, pa.Table], int, float]:
    """The alerts of each rule in order; then how many rows its groups did not see, and CPU seconds."""
    rule_set = first_rule_set(rules)
    job = InMemoryJob(Scorer(SCHEMA, engine, evaluations=False))
    started_s = time.process_time()
    payloads: list[bytes] = []
    unseen = 0
    for rows in table_arrivals(events, SCHEMA, frozenset()):
        results = job.score_batch([rows], rule_set)
        payloads += results.payloads.get(columns.ALERTS, [])
        unseen += results.account.groups[0].no_key
    spent_s = time.process_time() - started_s
    table = OutputDecoder(rule_set, SCHEMA, engine).table(columns.ALERTS, payloads) if payloads else None
    found = {}
    for rule in rules:
        mine = pa.table({}) if table is None else table.filter(pc.equal(table["rule_id"], rule.rule_id))
        kept = [name for name in mine.column_names if name != "ruleset_version"]
        found[rule.rule_id] = mine.select(kept).sort_by("position") if len(mine) else mine
    return found, unseen, spent_s


def main() -> None:
    """Compare, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    rows = QUICK_ROWS if chosen.quick else chosen.rows
    events, engine = payments(rows, chosen.share), EngineSettings(shards=4)
    together, _, spent_s = alerts_of(RULES, events, engine)
    strict, _, _ = alerts_of(RULES, events, engine.model_copy(update={"nulls": "strict"}))
    differ = []
    for rule in RULES:
        alone, unseen, _ = alerts_of([rule], events, engine)
        mine, other = together[rule.rule_id], alone[rule.rule_id]
        is_equal = mine.equals(other) or len(mine) == len(other) == 0
        if not is_equal:
            differ.append(rule.rule_id)
        said = {"rule": rule.rule_id, "alone": len(other), "together": len(mine), "equal": is_equal}
        print(json.dumps(said | {"rows_not_seen": unseen, "strict": len(strict[rule.rule_id])}), flush=True)
    print(
        json.dumps({"rows": rows, "null_share": chosen.share, "differ": differ, "cpu_us_per_row": spent_s / rows * 1e6})
    )
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()

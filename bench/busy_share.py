"""How much of its task slots does a batch keep busy? Shards by their own numbers, and spread evenly over the slots.

A stage ends with the slot that has most to do, so the busy share is the mean of what the slots have to do, divided by
the most. What a slot has to do is counted: payments times groupings of the shards that Spark's hash puts there.
Payments and rules of `team_data`, 13 groupings, a batch of 100,000.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from engine import SCHEMA, rules_of
from matplotlib.axes import Axes
from report import Report
from team_data import payments

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import fan_out
from buckets.events.parquet_rows import table_arrivals
from buckets.spark.shard_keys import ShardKeys, spark_hash

ROWS, GROUPINGS = 100_000, 13
SLOTS, SHARDS = (2, 8), (8, 16, 32)


def touches(shards: int) -> Counter[int]:
    """Payments times groupings of each shard."""
    rule_set, counted = rules_of(GROUPINGS), Counter[int]()
    for rows in table_arrivals(payments(ROWS), SCHEMA):
        for message in fan_out(rows, rule_set, SCHEMA, EngineSettings(shards=shards)):
            if message.payload[:1] == payload.EVENTS:
                counted[message.shard] += payload.unpack(message.payload).num_rows
    return counted


def busy_share(of_shard: Mapping[int, int], keys: ShardKeys, slots: int) -> float:
    """Mean and greatest of what the slots have to do, divided."""
    shards = np.array(list(of_shard))
    slot = spark_hash(np.array(keys.keys)[shards]).astype(np.int64) % slots
    of_slot = np.bincount(slot, weights=np.array(list(of_shard.values())), minlength=slots)
    return float(of_slot.mean() / of_slot.max())


def main() -> None:
    """Count."""
    report = Report("busy_share", __doc__, repeats=1)
    of_shards = {shards: touches(shards) for shards in SHARDS}
    cases = [(slots, shards) for slots in SLOTS for shards in SHARDS]
    own, spread = (
        [
            busy_share(
                of_shards[shards], ShardKeys.of(shards, slots) if is_spread else ShardKeys(tuple(range(shards))), slots
            )
            for slots, shards in cases
        ]
        for is_spread in (False, True)
    )
    report.found["busy_share"] = [
        {"slots": slots, "shards": shards, "own_numbers": before, "spread": after}
        for (slots, shards), before, after in zip(cases, own, spread, strict=True)
    ]
    report.table(
        "Busy share of task slots",
        ("Slots", "Shards", "by their own numbers", "spread evenly"),
        [
            (str(slots), str(shards), f"{before:.0%}", f"{after:.0%}")
            for (slots, shards), before, after in zip(cases, own, spread, strict=True)
        ],
    )

    def draw(axes: Axes) -> None:
        at = np.arange(len(cases))
        axes.bar(at - 0.2, own, 0.4, label="by their own numbers")
        axes.bar(at + 0.2, spread, 0.4, label="spread evenly")
        axes.set_xticks(at, [f"{slots} slots\n{shards} shards" for slots, shards in cases])
        axes.set_ylabel("busy share of the slots")
        axes.set_title("What a batch of 100,000 payments keeps busy")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()

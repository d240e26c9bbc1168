"""What does the engine alone cost, without Spark? CPU time of a batch over the groupings of a fraud team.

Both stages in one process (`InMemoryJob`), payments and rules of `team_data`, after 100,000 payments that are not
measured: batches of 100,000, of 500, of 100, and of one payment.
"""

import gc
import time
from dataclasses import dataclass
from statistics import median

import pyarrow as pa
from matplotlib.axes import Axes
from report import Goal, Report
from team_data import FIELDS, payments, team_rules

from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import InMemoryJob
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

SCHEMA = EventSchema.model_validate(
    {
        "name": "team",
        "event_id": "event_id",
        "event_time": {"field": "ts", "unit": "ms"},
        "attributes": dict.fromkeys(FIELDS, "string"),
        "measures": {"amount": {"scale": 0}},
    }
)
DAY_MS = 86_400_000
WARM_ROWS = 100_000


@dataclass(frozen=True)
class Size:
    """What is measured: so many groupings and shards, batches of so many payments, and how many of those."""

    groupings: int
    shards: int
    rows: int
    batches: int

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.rows:,} payments, {self.groupings} groupings, {self.shards} shards"


SIZES = (
    Size(1, 8, 100_000, 3),
    Size(13, 8, 100_000, 3),
    Size(13, 1, 500, 20),
    Size(13, 8, 500, 20),
    Size(13, 1, 100, 50),
    Size(13, 8, 100, 50),
    Size(13, 1, 1, 100),
    Size(13, 8, 1, 100),
)


def rules_of(groupings: int) -> RuleSet:
    """The team's rules over so many groupings, in force."""
    rules = [Rule.model_validate(rule) for rule in team_rules(groupings)]
    return revise(RuleSet(0, (), (), {}), changes_between((), rules), SCHEMA, (), DAY_MS).rule_set


def cost_ms(size: Size, table: pa.Table) -> float:
    """CPU time of a batch in ms, the median over the batches."""
    rule_set = rules_of(size.groupings)
    job = InMemoryJob(Scorer(SCHEMA, EngineSettings(shards=size.shards), evaluations=False))
    job.score_batch(list(table_arrivals(table.slice(0, WARM_ROWS), SCHEMA)), rule_set)
    spent_ms = []
    for batch in range(size.batches):
        rows = table.slice(WARM_ROWS + batch * size.rows, size.rows)
        arrivals = list(table_arrivals(rows, SCHEMA))
        gc.collect()
        gc.freeze()  # as in a worker: what is there stays, and is not looked through again
        started_s = time.process_time()
        job.score_batch(arrivals, rule_set)
        spent_ms.append((time.process_time() - started_s) * 1000)
    return median(spent_ms)


def main() -> None:
    """Measure."""
    report = Report("engine", __doc__)
    sizes = SIZES[2:] if report.quick else SIZES
    table = payments(WARM_ROWS + max(size.rows * size.batches for size in sizes))
    found: dict[Size, list[float]] = {size: [] for size in sizes}
    for _ in range(report.repeats):
        for size in sizes:
            found[size].append(cost_ms(size, table))
            report.console.print(f"  {size.name}: {found[size][-1]:.1f} ms", highlight=False)
    costs = {size: median(each) for size, each in found.items()}
    report.found["ms_a_batch"] = {size.name: {"median": costs[size], "runs": each} for size, each in found.items()}
    rows = [
        (size.name, f"{cost:.1f}", f"{cost * 1000 / size.rows / size.groupings:.2f}") for size, cost in costs.items()
    ]
    report.table("CPU time of a batch", ("Batch", "ms", "us a payment and grouping"), rows)
    of_500, hundred, hundred_of_8, one, one_of_8 = (costs[size] for size in SIZES[3:])
    report.goal(Goal("500 payments over 13 groupings and 8 shards, ms", of_500, at_most=25))
    report.goal(Goal("100 payments over 13 groupings and 1 shard, ms", hundred, at_most=4))
    report.goal(Goal("one payment over 13 groupings and 1 shard, ms", one, at_most=1.5))
    report.goal(Goal("100 payments, 8 shards against 1", hundred_of_8 / hundred, at_most=1.5))
    report.goal(Goal("one payment, 8 shards against 1", one_of_8 / one, at_most=1.5))

    def draw(axes: Axes) -> None:
        names = [size.name for size in costs]
        axes.barh(names, [cost * 1000 / size.rows / size.groupings for size, cost in costs.items()])
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.set_xlabel("us a payment and grouping")
        axes.set_title("CPU time of the engine alone")

    report.write(draw)


if __name__ == "__main__":
    main()

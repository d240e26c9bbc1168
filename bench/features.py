"""What do features cost? CPU time of a payment for each aggregate, a filter, a condition, and other groupings.

Both stages in one process, with a dictionary for a state store: 500 cards, 2,000 payments of each in an hour, batches
of 100,000 payments of which the first is not measured. Rules have one feature over an hour unless said otherwise, and
none fires. The price is what a payment costs beyond the same job with one rule of one aggregate.
"""

import gc
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.aggregates.component import PAIRS
from buckets.aggregates.registry import AGGREGATES
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
        "event_id": "id",
        "event_time": "time",
        "attributes": {"card": "string", "merchant": "string", "country": "string", "status": "string"},
        "measures": {"amount": {"scale": 2}},
    }
)
CARDS, BATCH, BATCHES = 500, 100_000, 4
HOUR_MS, IN_AN_HOUR, START_MS = 3_600_000, 2_000, 1_700_000_000_000
BASE = "one aggregate and a limit"
Sides = dict[str, list[dict[str, Any]]]


def payments(batches: int, rows: int) -> list[pa.Table]:
    """Batches of payments: card, merchant (5,000), country (20), status (1 in 10 declined), amount."""
    random = np.random.default_rng(1)
    count = batches * rows
    columns = {
        "id": pa.array([f"e{row}" for row in range(count)]),
        "time": pa.array(START_MS + np.arange(count) * HOUR_MS // (IN_AN_HOUR * CARDS)),
        "card": _names("c", random.integers(0, CARDS, count)),
        "merchant": _names("m", random.integers(0, 5_000, count)),
        "country": _names("l", random.integers(0, 20, count)),
        "status": pa.array(["DECLINED", "APPROVED"]).take(pa.array((random.random(count) > 0.1).astype(np.int32))),
        "amount": pa.array(random.integers(1, 500, count)),
    }
    table = pa.table(columns)
    return [table.slice(batch * rows, rows) for batch in range(batches)]


def _names(prefix: str, numbers: np.ndarray) -> pa.Array:
    names = pa.array([f"{prefix}{number:05d}" for number in range(int(numbers.max()) + 1)])
    return names.take(pa.array(numbers))


def simple(number: int = 0) -> dict[str, Any]:
    """A rule of one aggregate."""
    aggregate = {"function": "sum", "measure": "amount"}
    limit = {"operator": ">", "value": str(10**9 + number)}
    return {"group_by": ["card"], "aggregate": aggregate, "window": {"length": "1h"}, "limit": limit}


def with_features(features: Mapping[str, dict[str, Any]], when: str, **more: Any) -> dict[str, Any]:
    """A rule with features."""
    return {"group_by": ["card"], "features": dict(features), "when": when} | more


def feature(function: str, **more: Any) -> dict[str, Any]:
    """A feature over an hour; over ten seconds where each event of the window is looked at."""
    takes = AGGREGATES[function].takes
    of: dict[str, Any] = (
        {"of": "country" if "string" in takes and not AGGREGATES[function].keeps_kind else "amount"} if takes else {}
    )
    of |= {"p": 95} if AGGREGATES[function].parameter == "p" else {}
    steps = ["amount > 5000", "status = 'DECLINED'", "amount > 1000"]
    of |= (
        {"steps": steps[-3 if AGGREGATES[function].needs_steps > 1 else -1 :]}
        if AGGREGATES[function].needs_steps
        else {}
    )
    of |= {"without": steps[1], "within": "1s"} if AGGREGATES[function].parameter == "within" else {}
    of |= {"half_life": "10m"} if AGGREGATES[function].parameter == "half_life" else {}
    window = "1h" if AGGREGATES[function].operation < PAIRS else "10s"
    return {"function": function, "window": window} | of | more


def never(function: str) -> str:
    """A condition on feature `f` that is not met."""
    return "f AND amount < 0" if AGGREGATES[function].is_boolean else "f > 1000000000000"


def sides() -> Sides:
    """What is measured: rules by name."""
    found: Sides = {BASE: [simple()]}
    found |= {name: [with_features({"f": feature(name)}, never(name))] for name in AGGREGATES}
    declined = feature("sum", where="status = 'DECLINED'")
    found["sum with a filter of its own"] = [with_features({"f": declined}, never("sum"))]
    two = {"f": feature("sum"), "g": feature("avg", window="30d")}
    found["sum > 5 * average of 30 days"] = [with_features(two, "f > 50000 * g")]
    windows = {
        "without the event": {"length": "1h", "exclude": "current"},
        "until an hour before": {"length": "1h", "offset": "1h"},
        "this day in Berlin": {"this": "day", "zone": "Europe/Berlin"},
        "the last ten": {"last": 10, "within": "1h"},
        "the session": {"session": "1s", "within": "1h"},
    }
    for name, window in windows.items():
        for function in ("sum", "max"):
            found[f"{function}, {name}"] = [with_features({"f": feature(function, window=window)}, never(function))]
    ten_seconds = feature("count", window="10s", where="country <> this.country")
    found["count of 10 s in another country than now"] = [with_features({"f": ten_seconds}, never("count"))]
    for function in ("avg", "stddev"):
        of_seconds = feature(function, of={"function": "count", "every": "1s"}, window="30s")
        found[f"{function} of the counts of 30 seconds"] = [with_features({"f": of_seconds}, never(function))]
    texts = feature("previous", of="country")
    found["previous text"] = [with_features({"f": texts}, "f = 'nowhere'")]
    computed = simple() | {"score": "40 + 10 * least(value, 5)"}
    found["a score that is computed"] = [computed]
    other = {"f": feature("sum"), "g": feature("sum", group_by=["merchant"])}
    found["sum by card and sum by merchant"] = [with_features(other, "f > 50000 * g")]
    role = {"f": feature("sum"), "g": feature("sum", group_by=["merchant AS card"])}
    found["sum by card and sum of another role"] = [with_features(role, "f > 50000 * g")]
    found["1,000 conditions on the same two features"] = [
        with_features(two, f"f > {50_000 + number} * g") for number in range(1_000)
    ]
    found["1,000 limits"] = [simple(number) for number in range(1_000)]
    return found


def rule_set(written: Sequence[dict[str, Any]]) -> RuleSet:
    """The rules as a job has them."""
    rules = [Rule.model_validate({"rule_id": f"r{number}"} | rule) for number, rule in enumerate(written)]
    return revise(RuleSet(0, (), (), {}), changes_between((), rules), SCHEMA, (), HOUR_MS).rule_set


def cost_us(rules: RuleSet, batches: Sequence[pa.Table]) -> float:
    """CPU time of a payment in microseconds, without the first batch."""
    job = InMemoryJob(Scorer(SCHEMA, EngineSettings(), evaluations=False))
    spent_s = 0.0
    for number, batch in enumerate(batches):
        arrivals = list(table_arrivals(batch, SCHEMA))
        gc.collect()
        gc.freeze()  # as in a worker: what is there stays, and is not looked through again
        started_s = time.process_time()
        job.score_batch(arrivals, rules)
        spent_s += (time.process_time() - started_s) * (number > 0)
    return spent_s * 1e6 / sum(len(batch) for batch in batches[1:])


def main() -> None:
    """Measure."""
    report = Report("features", __doc__)
    batches = payments(2 if report.quick else BATCHES, 5_000 if report.quick else BATCH)
    measured = {name: rule_set(written) for name, written in sides().items()}
    found: dict[str, list[float]] = {name: [] for name in measured}
    cost_us(measured[BASE], batches)  # loads or compiles the kernels
    for _ in range(report.repeats):
        for name, rules in measured.items():
            found[name].append(cost_us(rules, batches))
            report.console.print(f"  {name}: {found[name][-1]:.2f} us a payment", highlight=False)
    costs = {name: median(each) for name, each in found.items()}
    report.found["us_a_payment"] = {name: {"median": costs[name], "runs": each} for name, each in found.items()}
    base = costs[BASE]
    rows = [(name, f"{cost:.2f}", f"{cost - base:+.2f}", f"{cost / base:.2f}") for name, cost in costs.items()]
    report.table("CPU time of a payment, us", ("Rule", "us", "beyond one aggregate", "times that"), rows)
    report.goal(Goal("1,000 limits, of one", costs["1,000 limits"] / base, at_most=1.2))

    def draw(axes: Axes) -> None:
        axes.barh(list(costs), list(costs.values()))
        axes.invert_yaxis()
        axes.set_xlabel("us a payment")
        axes.set_title("CPU time of a payment, by what a rule computes")

    report.write(draw)


if __name__ == "__main__":
    main()

"""What do many rules cost? Time of a batch and size of the state, against the number of rules and of groups.

500 payments a second from a topic into topics, 10,000 keys, windows of 5 minutes to 30 days. Groups differ in their
filters, and every payment falls into each of them.
"""

import json
import subprocess
import sys
from statistics import median
from typing import Any

from live_job import WINDOWS, live_job, rule
from matplotlib.axes import Axes
from measure import HERE, ROOT
from report import Report

RATE = 500
SECONDS = 40.0
WARM_UP_SHARE = 0.5
SIZES = ((10, 1), (100, 1), (1_000, 1), (100, 5), (1_000, 5), (20, 20), (100, 20), (1_000, 20))
FUNCTIONS = ("sum", "count", "avg", "max")


def rules(count: int, groups: int) -> list[dict[str, Any]]:
    """So many rules, spread over so many groups; none fires."""
    made = []
    for number in range(count):
        function, window = FUNCTIONS[number // groups % 4], WINDOWS[number // groups % len(WINDOWS)]
        aggregate = {"function": function} | ({} if function == "count" else {"measure": "amount"})
        where = {"amount": {">": str(number % groups - groups)}}
        limit = {"operator": ">", "value": str(1_000_000_000 + number)}
        made.append(rule(f"rule-{number}", window, aggregate=aggregate, where=where, limit=limit))
    return made


def measure(count: int, groups: int, seconds: float) -> dict[str, float]:
    """Run one size."""
    with live_job(rules(count, groups), {}) as live:
        with live.engine() as engine:
            engine.wait_for(int(live.producer(RATE, seconds).communicate()[0]))
        sized = subprocess.run(
            [sys.executable, str(HERE / "state_size.py"), str(live.job.checkpoint / "spark")],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        state = json.loads(sized.stdout)
    batches = [batch for batch in engine.batches if "written_s" in batch]
    measured = batches[int(len(batches) * WARM_UP_SHARE) :]
    return {
        "batch_ms": median((batch["scored_s"] + batch["written_s"]) * 1000 for batch in measured),
        "events_a_batch": median(batch["events"] for batch in measured),
        "state_bytes": sum(each["bytes"] for each in state["states"].values()),
    }


def main() -> None:
    """Measure."""
    report = Report("rule_counts", __doc__, repeats=1)
    found = {}
    for count, groups in SIZES[:2] if report.quick else SIZES:
        done = found[count, groups] = measure(count, groups, 15.0 if report.quick else SECONDS)
        report.console.print(f"  {count} rules in {groups} groups: {done['batch_ms']:.0f} ms a batch", highlight=False)
    report.found["sizes"] = [{"rules": count, "groups": groups} | done for (count, groups), done in found.items()]
    report.table(
        f"{RATE} payments a second",
        ("Rules", "Groups", "ms a batch", "Events a batch", "State, MB"),
        [
            (f"{count:,}", f"{groups}", f"{done['batch_ms']:,.0f}", f"{done['events_a_batch']:,.0f}",
             f"{done['state_bytes'] / 1e6:.1f}")
            for (count, groups), done in found.items()
        ],
    )  # fmt: skip

    def draw(axes: Axes) -> None:
        for groups in sorted({groups for _, groups in found}):
            line = [(count, done["batch_ms"]) for (count, of), done in found.items() if of == groups]
            axes.plot(*zip(*line, strict=True), marker="o", label=f"{groups} group{'s' * (groups > 1)}")
        axes.set(xscale="log", xlabel="rules", ylabel="ms a batch", title="Time of a batch against rules and groups")
        sizes = axes.twinx()
        for groups in sorted({groups for _, groups in found}):
            line = [(count, done["state_bytes"] / 1e6) for (count, of), done in found.items() if of == groups]
            sizes.plot(*zip(*line, strict=True), marker="x", linestyle=":")
        sizes.set_ylabel("state, MB (dotted)")
        axes.legend(loc="center left")

    report.write(draw)


if __name__ == "__main__":
    main()

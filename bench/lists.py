"""What does a list of a million entries cost that changes every second? The delay of alerts with it and without it.

The two sides take turns. Both have ten rules in two groups; with the list, the filter of one group and the condition of
a rule look into it, and without it they look at a field of the payment alone. The list is in a topic; every second so
many of its entries are replaced. One rule with a filter fires at every payment, and its alert is what is timed.

    python bench/lists.py [--rate 500] [--seconds 120] [--entries 1000000] [--changed 100] [--rounds 2]
"""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from latency import DRAIN_S, QUANTILES, consume_alerts, quantiles
from live_job import EVERY, HISTORY_EVENTS, LiveJob, live_job, rule, ten_rules
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.kafka.sender import Sender, paced_produce

OPTIONS = {"--rate": "500", "--seconds": "120", "--entries": "1000000", "--changed": "100", "--rounds": "2"}
WARM_UP_S = 30.0
TOPIC = "list-blocked"
LISTS = {"lists": {"blocked": {"kind": "kafka", "topic": TOPIC}}}
WITH, WITHOUT = "with the list", "without"
RATIO = 1.3


def rules(side: str) -> list[dict[str, Any]]:
    """Ten rules and one with a condition; of the ten the first, which fires at every payment, has a filter."""
    with_list = side == WITH
    first, *others = ten_rules()
    first["where"] = "payerId NOT IN LIST blocked" if with_list else "payerId != 'nobody'"
    looked = "lookup(blocked, beneficiaryId, 'tier') = 'none'" if with_list else "beneficiaryId = 'nobody'"
    judged = rule("looked-up", "1h", features={"payments": {"function": "count", "window": "1h"}})
    judged["when"] = f"payments > 0 AND {looked}"
    return [first, *others, {name: judged[name] for name in ("rule_id", "group_by", "features", "when")}]


def entry(number: int) -> tuple[str, bytes]:
    """An entry of the list, as a message; no payer is in it."""
    return f"DE{number:020d}", b'{"tier": "gold", "author": "bench", "reason": "weekly load"}'


def entries(count: int) -> Iterator[tuple[str, bytes]]:
    """The entries with which the list begins."""
    return map(entry, range(count))


def change(live: LiveJob, count: int, changed: int, stopping: threading.Event) -> None:
    """Every second remove the oldest entries, and add as many new ones, until told to stop."""
    sender = Sender(live.kafka)
    for second in itertools.count():
        if stopping.wait(1.0):
            return
        for number in range(second * changed, (second + 1) * changed):
            sender.send(TOPIC, entry(number)[0], None, {})
            sender.send(TOPIC, *entry(count + number), {})
        sender.flush()


def measure(side: str, seconds: float, report: Report) -> dict[str, Any]:
    """Run one side.

    Returns:
        Delays in ms of the payments after the warm-up, and how many versions the list had.
    """
    count, changed = int(report.option("--entries")), int(report.option("--changed"))
    if report.quick:
        count //= 100
    with live_job(rules(side), {}, **(LISTS if side == WITH else {})) as live:
        if side == WITH:
            paced_produce(live.kafka, TOPIC, entries(count), rate=1_000_000)
        with live.engine() as engine:
            live.send_history()
            engine.wait_for(HISTORY_EVENTS)
            report.console.print(f"  {side}: history is scored", highlight=False)
            found: list[tuple[int, int]] = []
            stopping = threading.Event()

            def take(alert: dict[str, Any]) -> None:
                if alert["rule_id"] == EVERY:
                    found.append((alert["event_time"], time.time_ns() // 1_000_000))

            threads = [threading.Thread(target=consume_alerts, args=(live, stopping, take), daemon=True)]
            if side == WITH:
                threads.append(threading.Thread(target=change, args=(live, count, changed, stopping), daemon=True))
            for thread in threads:
                thread.start()
            started_ms = time.time_ns() // 1_000_000
            rate = int(report.option("--rate"))
            sent = int(live.producer(rate, WARM_UP_S + seconds).communicate()[0])
            engine.wait_for(HISTORY_EVENTS + sent)
            time.sleep(DRAIN_S)
            stopping.set()
            for thread in threads:
                thread.join()
            engine.stop()
        folder = live.job.checkpoint / "buckets" / "lists" / "blocked"
        versions = max((int(file.stem) for file in folder.glob("*.json")), default=0)
    if len(found) < sent:
        sys.exit(f"{sent - len(found):,} of {sent:,} payments have no alert")
    begin_ms = started_ms + WARM_UP_S * 1000
    return {"late": [came - due for due, came in found if due >= begin_ms], "versions": versions}


def main() -> None:
    """Measure."""
    report = Report("lists", __doc__, repeats=1, options=OPTIONS)
    seconds = 15.0 if report.quick else float(report.option("--seconds"))
    rounds = 1 if report.quick else int(report.option("--rounds"))
    late: dict[str, list[int]] = {WITHOUT: [], WITH: []}
    versions = 0
    for _, side in itertools.product(range(rounds), late):
        done = measure(side, seconds, report)
        late[side] += done["late"]
        versions += done["versions"]
    shown = {side: quantiles(values) for side, values in late.items()}
    report.table(
        f"{int(report.option('--rate'))} payments/s; ms from payment to alert; {versions:,} versions of the list",
        ("Side", *QUANTILES),
        [(side, *(f"{value:,.0f}" for value in of_side.values())) for side, of_side in shown.items()],
    )
    report.found |= {"latency_ms": shown, "versions": versions}
    for name in ("p50", "p99"):
        report.goal(Goal(f"{name}, times that without", shown[WITH][name] / shown[WITHOUT][name], at_most=RATIO))

    def draw(axes: Axes) -> None:
        for side, values in late.items():
            ordered = np.sort(values)
            axes.plot(ordered, 1 - np.arange(len(ordered)) / len(ordered), label=side)
        axes.set(xlabel="ms from payment to alert", ylabel="share of payments that took longer", yscale="log")
        axes.set_title("Delay of alerts with a list that changes every second")
        axes.grid(alpha=0.3)
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()

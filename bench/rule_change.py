"""How long from a changed rule to the first payment that is evaluated by it?

500 payments a second, ten rules in a topic. Fifty times a rule is changed; the clock runs from the acknowledgement of
the message by the broker to the decision on the first payment under the new version. In the end every payment must have
been evaluated, and the alerts must be those that the core gives the same payments under the same versions.
"""

import itertools
import json
import random
import sys
import threading
import time

import numpy as np
from latency import WARM_UP_S, consume_alerts
from live_job import EVERY, LiveJob, live_job, rule, ten_rules
from matplotlib.axes import Axes
from report import Report

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.kafka.sender import Sender
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule
from tests.core.pipeline import Pipeline
from tests.kafka.topic_reader import TopicReader

CHANGES = 50
RATE = 500
APART_S = (1.0, 3.0)
SETTLE_S = 5.0


def change_rules(live: LiveJob, changes: int) -> list[int]:
    """Change rules one after another; when each message was acknowledged, in ms since the epoch."""
    sender, dice, acknowledged = Sender(live.kafka), random.Random(4), []
    topic = live.job.settings.rules.topic or ""
    for number in range(changes):
        time.sleep(dice.uniform(*APART_S))
        limit = {"operator": ">=", "value": "1"} if number % 2 else {"operator": ">", "value": "0"}
        new = rule(EVERY, "5m", aggregate={"function": "count"}, limit=limit, description=f"change {number + 1}")
        put = RuleChange(change="put", rule=Rule.model_validate(new), author="bench", reason=f"change {number + 1}")
        sender.send(topic, EVERY, put.to_json(), {})
        sender.flush()
        acknowledged.append(time.time_ns() // 1_000_000)
    return acknowledged


def publish(live: LiveJob) -> None:
    """Put the first rules into the topic."""
    sender = Sender(live.kafka)
    for each in ten_rules():
        put = RuleChange(change="put", rule=Rule.model_validate(each), author="bench", reason="first rules")
        sender.send(live.job.settings.rules.topic or "", each["rule_id"], put.to_json(), {})
    sender.flush()


def replay(live: LiveJob, alerts: list[dict], payments: list[dict]) -> tuple[int, int]:
    """Score the payments again in the core, each under the version it was evaluated by.

    Returns:
        How many alerts there are, and how many of them differ from those of the replay.
    """
    version_at = {alert["position"]: alert["ruleset_version"] for alert in alerts if alert["rule_id"] == EVERY}
    versions, schema = RuleVersions(live.job.checkpoint), live.job.event_schema
    pipeline = Pipeline(versions.rule_set(1), schema, shards=live.job.settings.engine.shards)
    for version, part in itertools.groupby(enumerate(payments), key=lambda each: version_at[each[0]]):
        pipeline.rule_set = versions.rule_set(version)
        pipeline.batch([[payment | {"position": offset} for offset, payment in part]])
    fields = ("alert_id", "ruleset_version", "count", "event_time")
    expected = {tuple(row[name] for name in fields) for row in pipeline.output("alerts")}
    found = {tuple(alert[name] for name in fields) for alert in alerts}
    return len(found), len(found ^ expected)


def main() -> None:
    """Measure."""
    report = Report("rule_change", __doc__, repeats=1)
    changes = 5 if report.quick else CHANGES
    seconds = (WARM_UP_S / 2 if report.quick else WARM_UP_S) + changes * sum(APART_S) / 2 + 2 * SETTLE_S
    with live_job((), {}, rules={"topic": "rules"}) as live:
        publish(live)
        with live.engine() as engine:
            alerts: list[dict] = []
            stopping = threading.Event()
            consumer = threading.Thread(target=consume_alerts, args=(live, stopping, alerts.append), daemon=True)
            consumer.start()
            producer = live.producer(RATE, seconds)
            engine.wait_for(int(RATE * seconds * (0.5 if report.quick else 0.3)))
            acknowledged = change_rules(live, changes)
            sent = int(producer.communicate()[0])
            engine.wait_for(sent)
            time.sleep(SETTLE_S)
            stopping.set()
            consumer.join()
        payments: list[dict] = []
        with TopicReader(live.kafka, ["transactions"], from_end=False) as reader:
            while len(payments) < sent:
                payments += [json.loads(message.value() or b"{}") for message in reader.poll(1.0)]
        evaluated = {alert["event_id"] for alert in alerts if alert["rule_id"] == EVERY}
        if len(evaluated) < sent:
            sys.exit(f"{sent - len(evaluated):,} of {sent:,} payments were not evaluated")
        count, differing = replay(live, alerts, payments)
        versions = RuleVersions(live.job.checkpoint).history()
    decided: dict[int, int] = {}
    for alert in alerts:
        version = alert["ruleset_version"]
        decided[version] = min(decided.get(version, alert["decided_at"]), alert["decided_at"])
    took_ms = [
        min(at_ms for version, at_ms in decided.items() if version >= each.version)
        - acknowledged[int(change.reason[7:]) - 1]
        for each in versions
        for change in each.changes
        if change.reason.startswith("change ")
    ]
    shown = {"p50": float(np.median(took_ms)), "max": float(max(took_ms))}
    report.found |= {"changes": len(took_ms), "ms": took_ms, "took_ms": shown, "payments": sent}
    report.found |= {"alerts": count, "alerts_that_differ_from_the_replay": differing}
    report.table(
        f"{len(took_ms)} changes under {RATE} payments a second; {sent:,} payments, {count:,} alerts, "
        f"{differing} of them other than in the replay",
        ("From acknowledgement to first decision", "p50", "max"),
        [("ms", f"{shown['p50']:,.0f}", f"{shown['max']:,.0f}")],
    )

    def draw(axes: Axes) -> None:
        axes.hist(took_ms, bins=20)
        axes.set(xlabel="ms from acknowledgement to first decision", ylabel="changes", title="Changes of a rule")

    report.write(draw)


if __name__ == "__main__":
    main()

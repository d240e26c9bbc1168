"""Calls for half an hour while the broker is stopped and started again: answers are the job's, and nothing is lost.

    python bench/serve_soak.py [--minutes 30] [--rate 300] [--away-every 300] [--work FOLDER]

One broker, one job, one `buckets serve`. At the end every answer is compared with the alerts that the job has written
for that offset, every payment that was taken is looked for in the topic, and memory is compared: the median of the last
fifth of the samples with that of the third, by when windows are full.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from live_job import SCHEMA, rule
from measure import machine
from rich.console import Console

from buckets.cli.child import Child, end_all
from buckets.cli.demo.paced_calls import PacedCalls
from buckets.config.job import Job, load_job
from buckets.kafka.local_broker import HOST, LocalBroker, free_port
from buckets.kafka.sender import paced_produce
from buckets.kafka.topics import create_topics
from buckets.monitor.live import read_live
from tests.kafka.topic_reader import TopicReader

RESULTS = Path(__file__).resolve().parent / "results"
PAYERS, BENEFICIARIES = 5_000, 997
AWAY_S, SAMPLE_S, PATIENCE_S = 5.0, 5.0, 300.0
RULES = [
    rule("payer-count-1m", "1m", aggregate={"function": "count"}, limit={"operator": ">=", "value": "7"}),
    rule("payer-sum-5m", "5m", limit={"operator": ">", "value": "3000"}, cooldown="5m", score=10),
    rule("pair-sum-10m", "10m", group_by=["payerId", "beneficiaryId"], limit={"operator": ">", "value": "60"}),
    rule("beneficiary-max", "10m", group_by=["beneficiaryId"], aggregate={"function": "max", "measure": "amount"},
         limit={"operator": ">", "value": "99"}),
]  # fmt: skip


def payments(count: int) -> Iterator[tuple[str, bytes]]:
    """Payments of now; one in a thousand comes twice."""
    dice, before = random.Random(5), b""
    for number in range(count):
        if before and not number % 1_000:
            yield "", before
        value = {"id": f"e{number}", "at": time.time_ns() // 1_000_000, "payerId": f"p{dice.randrange(PAYERS)}"}
        value |= {"beneficiaryId": f"b{dice.randrange(BENEFICIARIES)}", "amount": f"{dice.randrange(10_000) / 100:.2f}"}
        before = json.dumps(value).encode()
        yield value["payerId"], before


def configured(folder: Path, broker: LocalBroker) -> tuple[Path, Job]:
    """A job on the broker."""
    folder.joinpath("schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    folder.joinpath("rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    conf = {
        "kafka": {"bootstrap_servers": f"{HOST}:{broker.port}", "outage_patience": "10m"},
        "source": {"kind": "kafka", "topic": "transactions"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"kind": "kafka"},
        "trigger": {"interval": "0ms"},
        "partitions": 1,
        "engine": {"shards": 1, "allowed_lateness": "1m"},
        "serve": {"answer_within": "200ms"},
    }
    path = folder / "conf.yaml"
    path.write_text(yaml.safe_dump(conf))
    return path, load_job(path)


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read(job: Job, topic: str, wanted: int) -> Iterator[Any]:
    """All messages of a topic."""
    assert job.settings.kafka is not None
    found = 0
    with TopicReader(job.settings.kafka, [topic], from_end=False) as reader:
        while messages := reader.poll(10.0 if found < wanted else 2.0):
            found += len(messages)
            yield from messages


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--rate", type=float, default=300.0)
    options.add_argument("--away-every", type=float, default=300.0, help="seconds between stops of the broker")
    options.add_argument("--out", type=Path, default=RESULTS)
    given, console = options.parse_args(), Console()
    with tempfile.TemporaryDirectory() as work:
        found, other = soak(Path(work), given, console)
    console.print(json.dumps(found, indent=1), highlight=False)
    (given.out / "serve_soak.json").write_text(json.dumps(found, indent=1) + "\n")
    if other:
        (given.out / "serve_soak_differ.json").write_text(json.dumps(other, indent=1) + "\n")
    if found["differ"] or found["lost"] or found["memory_times"] > 1.1:
        sys.exit(1)


def soak(folder: Path, given: argparse.Namespace, console: Console) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Send calls, stop and start the broker, and compare: what was found, and the answers that differ."""
    broker = LocalBroker(folder / "kafka", free_port())
    broker.start()
    conf, job = configured(folder, broker)
    assert job.settings.kafka is not None
    create_topics(job.settings.kafka, job, 1)
    calls, ending = PacedCalls(free_port()), threading.Event()
    paced_produce(job.settings.kafka, "transactions", payments(10), 1_000)
    children = [
        Child([name, str(conf), *options], folder / f"{name}.log")
        for name, *options in (["run"], ["serve", "--port", str(calls.port)])
    ]
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not calls.is_ready() and time.monotonic() < until_s:
            time.sleep(0.2)
        samples, stops = list[int](), 0
        count = round(given.rate * given.minutes * 60)
        sending = threading.Thread(
            target=calls.send, args=(payments(count), given.rate, lambda key, due_ms: None, ending)
        )
        sending.start()
        away_s = time.monotonic() + given.away_every
        while sending.is_alive():
            sending.join(SAMPLE_S)
            samples.append(resident_bytes(children[1].pid))
            for child in children:
                child.check()
            if time.monotonic() > away_s and sending.is_alive():
                broker.stop()
                time.sleep(AWAY_S)
                broker.start()
                stops, away_s = stops + 1, time.monotonic() + given.away_every
                console.print(
                    f"{len(calls.seconds):,} calls, {stops} stops, {samples[-1] >> 20:,} MiB", highlight=False
                )
        found, other = compared(job, calls, samples)
        return found | {"stops": stops, "machine": machine()}, other
    finally:
        ending.set()
        end_all(children)
        broker.stop()


def compared(job: Job, calls: PacedCalls, samples: list[int]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Compare answers with what the job has written, once it has come to all payments."""
    written = {(each.partition(), each.offset()): each.value() for each in read(job, "transactions", 1)}
    until_s = time.monotonic() + PATIENCE_S
    while (live := read_live(job.checkpoint)) is None or live.data["totals"]["events"] < len(written):
        if time.monotonic() > until_s:
            sys.exit("the job has not come to the end of the topic")
        time.sleep(1)
    of_job: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for message in read(job, "alerts", 1):
        alert = json.loads(message.value())
        of_job[alert["position"]][alert["alert_id"]] = alert
    outcomes, other = Counter(answer["outcome"] for answer in calls.answers), list[dict[str, Any]]()
    for answer in calls.answers:
        if answer["outcome"] == "undecided" or answer["repeated"]:
            continue
        own = {alert["alert_id"]: alert for alert in answer["alerts"]}
        if _said(own) != _said(of_job[answer["offset"]]):
            other.append({"answer": answer, "of_job": list(of_job[answer["offset"]].values())})
    ids = {json.loads(value)["id"] for value in written.values()}
    lost = sum(1 for answer in calls.answers for alert in answer["alerts"] if alert["event_id"] not in ids) + max(
        sum(1 for answer in calls.answers if answer.get("written", True)) - len(written), 0
    )
    fifth = max(len(samples) // 5, 1)
    found = {
        "calls": len(calls.seconds),
        "refused": calls.refused,
        "outcomes": dict(outcomes),
        "alerts_in_answers": sum(len(answer["alerts"]) for answer in calls.answers),
        "alerts_of_job": sum(map(len, of_job.values())),
        "differ": len(other),
        "lost": lost,
        "written": len(written),
        "memory_mib": [samples[0] >> 20, samples[-1] >> 20],
        "memory_times": round(median(samples[-fifth:]) / median(samples[2 * fifth : 3 * fifth] or samples), 3),
    }
    return found, other


def _said(alerts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Alerts without the moment of their decision."""
    return {
        alert_id: {name: value for name, value in alert.items() if name != "decided_at"}
        for alert_id, alert in alerts.items()
    }


if __name__ == "__main__":
    main()

"""How long does a call of `buckets serve` take, how many can there be, and what does it hold in memory?

    python bench/serve.py [--parts check,score,rates,beside,start] [--rate 200] [--seconds 60] [--peer PYTHON]

Thirteen rules over as many groupings, as a fraud team has them, and a state of 100,000 payments, made by the job. Calls
come at a fixed rate, and each counts from the moment at which it was due (`serve_calls.py`).

- `check` and `score`: calls with the job at rest, which is stopped; `check` once more with all features in the answer.
- `rates`: with the job at rest, more and more calls a second.
- `beside`: both with the job scoring on the same two cores.
- `start`: 1,000,000 keys with five payments each in one grouping, from the command until `/readyz` says so, and what
  the process holds then, beside one with 10,000 keys.

With `--peer`, a Python that has redis, hiredis, and uvicorn with httptools and uvloop, the same calls go to a feature
server too (`serve_peer.py`) over the `redis-server` of this machine, and some of its numbers are compared with ours.
"""

import contextlib
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from live_job import LiveJob, live_job
from matplotlib.axes import Axes
from measure import HERE, ROOT
from report import Goal, Report
from restart import RULE as SUM_BY_PAYER
from restart import SCHEMA as ONE_GROUPING
from team_data import FIELDS, GROUPINGS, SCHEMA, payments, team_rules
from team_run import TICKS_PER_S

from buckets.byte_strings import ByteStrings
from buckets.cli.child import Child, end_all
from buckets.engine.storage.arena import STORED, Arena
from buckets.kafka.local_broker import HOST, free_port
from buckets.serve.begin import read_entries, state_of
from buckets.serve.job_batches import JobBatches

PARTS = "check,score,rates,beside,start"
HISTORY, POOL = 100_000, 300_000
RATES = (300, 500, 700, 1_000)
KEYS, FEW_KEYS, EVENTS_OF_KEY = 1_000_000, 10_000, 5
START_MS = 1_700_000_000_000
COMPARED = 300
READY_WITHIN_S, POLL_S = 300.0, 0.02
WARM_UP_S, QUICK_S, STEP_S = 15.0, 3.0, 20.0
CHECK, SCORE, FEATURES = "/v1/score?mode=check", "/v1/score", "/v1/score?mode=check&features=*"
GOALS_MS = {"check": (3, 10, 25), "score": (8, 25, 50)}
CALLS_P99_MS, CALLS, START_S, TIMES_ARENA = 50.0, 1_000, 20.0, 2.0
ANSWERED_SHARE = 0.999
QUANTILES = ("p50", "p99", "p99.9")


def send(live: LiveJob, values: Iterator[bytes]) -> None:
    """Write payments to the topic, as fast as it goes."""
    producer = Producer({"bootstrap.servers": live.kafka.bootstrap_servers, "linger.ms": 50, "compression.type": "lz4"})
    for value in values:
        while True:
            try:
                producer.produce("transactions", value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def cpu_s(process_id: int) -> float:
    """The CPU that a process has taken."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident(process_id: int, name: str) -> int:
    """Bytes of a process that are in memory, or were at most."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


class Served:
    """What answers calls, and how it is asked."""

    def __init__(self, port: int, process_id: int, ready_s: float) -> None:
        """Ask a process that listens."""
        self.place, self.process_id, self.ready_s = f"{HOST}:{port}", process_id, ready_s

    def ask(self, target: str, body: bytes) -> Any:
        """The answer to one call."""
        with urllib.request.urlopen(f"http://{self.place}{target}", body, timeout=30) as answer:
            return json.load(answer)

    def call(self, target: str, bodies: Path, rate: float, warm_up_s: float, seconds: float) -> dict[str, Any]:
        """Send calls, and return what the caller and the process have taken."""
        command = [sys.executable, str(HERE / "serve_calls.py"), self.place, target, str(bodies)]
        before_s = cpu_s(self.process_id)
        printed = subprocess.run(
            [*command, str(rate), str(warm_up_s), str(seconds)], stdout=subprocess.PIPE, check=True, text=True
        )
        took_s = cpu_s(self.process_id) - before_s
        found: dict[str, Any] = json.loads(printed.stdout)
        return found | {"rate": rate, "cpu_ms_of_call": round(took_s / rate / (warm_up_s + seconds) * 1000, 3)}


@contextmanager
def serving(live: LiveJob) -> Iterator[Served]:
    """The product, once it is ready."""
    assert live.job.settings.serve is not None
    port, began_s = live.job.settings.serve.port, time.monotonic()
    child = Child(["serve", str(live.conf)], live.conf.with_name("serve.log"))
    try:
        wait_for(f"http://{HOST}:{port}/readyz", began_s + READY_WITHIN_S, child)
        yield Served(port, child.pid, round(time.monotonic() - began_s, 2))
    finally:
        end_all([child])


def wait_for(address: str, until_s: float, child: Child) -> None:
    """Wait for 200 from an address."""
    while time.monotonic() < until_s:
        child.check()
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(address):
            return
        time.sleep(POLL_S)
    sys.exit(f"{address} is not ready: {child.last_line()}")


class Payments:
    """The team's payments as messages, and those that no call has sent yet."""

    def __init__(self, folder: Path, history: int, pool: int) -> None:
        """Make them."""
        self._folder, self._at = folder, history
        rows = payments(history + pool).select(["event_id", "ts", "amount", *FIELDS]).to_pylist()
        self.values = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
        self.history = self.values[:history]
        self.keys = len({(fields, *map(row.__getitem__, fields)) for row in rows[:history] for fields in GROUPINGS})

    def write(self, name: str, values: Sequence[bytes]) -> Path:
        """Write payments as a file of lines."""
        path = self._folder / name
        path.write_bytes(b"\n".join(values))
        return path

    def next(self, count: int) -> Path:
        """A file of payments that follow those before."""
        first, self._at = self._at, self._at + count
        if self._at > len(self.values):
            sys.exit("there are not enough payments")
        return self.write("calls.jsonl", self.values[first : self._at])


class Bench:
    """What is measured, and what was found so far."""

    def __init__(self, report: Report) -> None:
        """Read the options."""
        self.report, self.parts = report, report.option("--parts").split(",")
        self.rate, self.peer = float(report.option("--rate")), report.option("--peer")
        self.warm_up_s = QUICK_S if report.quick else WARM_UP_S
        self.seconds = QUICK_S if report.quick else float(report.option("--seconds"))
        self.step_s = QUICK_S if report.quick else STEP_S
        self.runs: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def call(self, name: str, served: Served, target: str, payments: Payments) -> None:
        """Send calls at the rate of the goals."""
        self.take(name, self.sent(served, target, payments, self.rate, self.warm_up_s, self.seconds))

    def sent(
        self, served: Served, target: str, payments: Payments, rate: float, warm_up_s: float, seconds: float
    ) -> dict[str, Any]:
        """Send calls at a rate, of payments that are new where they are kept."""
        count = math.ceil(rate * (warm_up_s + seconds))
        bodies = payments.next(count) if target == SCORE else payments.write("calls.jsonl", payments.values[-count:])
        return served.call(target, bodies, rate, warm_up_s, seconds)

    def take(self, name: str, found: dict[str, Any]) -> None:
        """Take down a run."""
        self.runs[name].append(found)
        self.report.console.print(f"  {name}: {json.dumps(found)}", highlight=False)

    def rates(self, served: Served, side: str, target: str, payments: Payments) -> None:
        """Send more and more calls a second, until they take too long."""
        for rate in RATES:
            found = self.sent(served, target, payments, rate, QUICK_S, self.step_s)
            self.take(f"{side} at {rate}/s", found)
            if not holds(found):
                break

    def measure(self, live: LiveJob, payments: Payments) -> None:
        """Measure calls, with the job at rest and beside it."""
        parts = [part for part in self.parts if part != "start"]
        with live.engine() as engine:
            send(live, iter(payments.history))
            engine.wait_for(len(payments.history))
        with serving(live) as served, self.redis(payments) as peer:
            self.report.found["ready_s"] = served.ready_s
            print_ready(self.report, payments.keys, served)
            if peer is not None:
                self.compare(served, peer, payments)
            if "check" in parts:
                self.call("check", served, CHECK, payments)
                self.call("check, all features", served, FEATURES, payments)
                if peer is not None:
                    self.call("feature server, check", peer, CHECK, payments)
            if "score" in parts:
                self.call("score", served, SCORE, payments)
                if peer is not None:
                    self.call("feature server, score", peer, SCORE, payments)
            if "rates" in parts:
                self.rates(served, "check", CHECK, payments)
                self.rates(served, "score", SCORE, payments)
                if peer is not None:
                    self.rates(peer, "feature server, score", SCORE, payments)
        if "beside" in parts:
            with live.engine() as engine, serving(live) as served:
                engine.wait_for(1)
                self.call("check, job beside", served, CHECK, payments)
                self.call("score, job beside", served, SCORE, payments)

    @contextmanager
    def redis(self, payments: Payments) -> Iterator[Served | None]:
        """The peer with the same history, if there is one."""
        if not self.peer:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work, contextlib.ExitStack() as stack:
            store, port = free_port(), free_port()
            rules = Path(work, "rules.json")
            rules.write_text(json.dumps(team_rules(len(GROUPINGS))), encoding="utf-8")
            settings = ("--port", str(store), "--bind", HOST, "--dir", work, "--save", "", "--appendonly", "yes")
            started(stack, "redis-server", *settings)
            script = [self.peer, str(HERE / "serve_peer.py"), str(rules), str(store)]
            time.sleep(1)
            began_s = time.monotonic()
            subprocess.run([*script, str(payments.write("history.jsonl", payments.history))], check=True)
            filled_s = round(time.monotonic() - began_s, 1)
            server = started(stack, *script, str(port))
            time.sleep(2)
            yield Served(port, server.pid, filled_s)

    def compare(self, served: Served, peer: Served, payments: Payments) -> None:
        """Ask both for the same values."""
        names = [str(rule["rule_id"]) for rule in team_rules(len(GROUPINGS))]
        different = 0
        for body in random.Random(1).sample(payments.values[len(payments.history) :][:10_000], COMPARED):
            ours, theirs = served.ask(FEATURES, body)["features"], peer.ask(CHECK, body)["values"]
            different += sum(
                not math.isclose(float(ours[f"{name}.value"]["value"]), theirs[name], rel_tol=1e-12) for name in names
            )
        self.report.found["compared"] = {"calls": COMPARED, "values": COMPARED * len(names), "different": different}
        self.report.console.print(f"  compared with the peer: {self.report.found['compared']}", highlight=False)

    def start(self, keys: int) -> dict[str, float]:
        """Start with so many keys, and see what they take."""

        def history() -> Iterator[bytes]:
            for number in range(keys * EVENTS_OF_KEY):
                at_ms = START_MS + number * 3_600_000 // (keys * EVENTS_OF_KEY)
                yield b'{"id":"e%d","at":%d,"payer":"p%07d","amount":"12.34"}' % (number, at_ms, number % keys)

        serve = {"port": free_port()}
        source = {"kind": "kafka", "topic": "transactions", "max_offsets_per_trigger": 500_000}
        with live_job([SUM_BY_PAYER], {}, schema=ONE_GROUPING, source=source, serve=serve) as live:
            with live.engine() as engine:
                send(live, history())
                engine.wait_for(keys * EVENTS_OF_KEY)
            with serving(live) as served:
                time.sleep(2)
                found = {
                    "keys": keys,
                    "ready_s": served.ready_s,
                    "bytes": resident(served.process_id, "VmRSS"),
                    "most_bytes": resident(served.process_id, "VmHWM"),
                }
            found["arena_bytes"] = arena_bytes(live)
        self.report.console.print(f"  {json.dumps(found)}", highlight=False)
        return found


def arena_bytes(live: LiveJob) -> int:
    """What an arena takes for the timelines of a job by its own account."""
    number, stored = read_entries(live.job.checkpoint, threading.Event())
    batch = JobBatches(live.job.checkpoint).batch(number)
    assert batch is not None
    store, _ = state_of(live.job.checkpoint, batch, stored)
    keys, arena = ByteStrings.of([*store.heads.list_keys()]), Arena()
    arena.put(keys, store.heads.read(keys), STORED)
    return arena.used_bytes


def started(stack: contextlib.ExitStack, *command: str) -> subprocess.Popen[bytes]:
    """A process that ends with a stack."""
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT))
    stack.callback(process.terminate)
    return process


def print_ready(report: Report, keys: int, served: Served) -> None:
    """Say how large the state is, and how long it took."""
    report.found["keys"] = keys
    report.console.print(f"  {keys:,} keys in 13 groupings, ready after {served.ready_s} s", highlight=False)


def holds(found: dict[str, Any]) -> bool:
    """Whether a rate was held: nearly all calls were answered, and in time."""
    answered: int = found["counts"].get("200", 0) - found["counts"]["undecided"]
    p99_ms: float = found["took_ms"]["p99"]
    return answered >= ANSWERED_SHARE * found["calls"] and p99_ms < CALLS_P99_MS and not found["unanswered"]


def main() -> None:
    """Measure."""
    options = {"--parts": PARTS, "--rate": "200", "--seconds": "60", "--peer": ""}
    report = Report("serve", __doc__, repeats=1, options=options)
    bench = Bench(report)
    if bench.peer and shutil.which("redis-server") is None:
        sys.exit("there is no redis-server")
    if set(bench.parts) - {"start"}:
        with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
            payments = Payments(Path(work), HISTORY // 20 if report.quick else HISTORY, POOL)
            for _ in range(report.repeats):
                serve = {"port": free_port(), "answer_within": "10s"}
                with live_job(team_rules(len(GROUPINGS)), {}, schema=SCHEMA, serve=serve) as live:
                    bench.measure(live, payments)
    report.found["calls"] = bench.runs
    rows = []
    for name, runs in bench.runs.items():
        middle = {each: median(run["took_ms"][each] for run in runs) for each in QUANTILES}
        rows.append((name, *(f"{value:,.1f}" for value in middle.values()), f"{runs[0]['cpu_ms_of_call']:.2f}"))
        for each, most_ms in zip(QUANTILES, GOALS_MS.get(name, ()), strict=False):
            report.goal(Goal(f"{name}, {each}, ms", middle[each], at_most=most_ms))
    report.table(f"Calls, {bench.rate:g}/s, ms", ("Calls", *QUANTILES, "CPU of a call"), rows)
    for side in ("check", "score"):
        held = [rate for rate in RATES for run in bench.runs.get(f"{side} at {rate}/s", []) if holds(run)]
        if "rates" in bench.parts:
            report.goal(Goal(f"{side}, calls/s with p99 below 50 ms", max(held, default=0), at_least=CALLS))
    if "start" in bench.parts:
        few, many = (bench.start(keys // 20 if report.quick else keys) for keys in (FEW_KEYS, KEYS))
        of_key = (many["bytes"] - few["bytes"]) / (many["keys"] - few["keys"])
        of_arena = many["arena_bytes"] / many["keys"]
        report.found["start"] = {"few": few, "many": many, "bytes_of_key": of_key, "arena_bytes_of_key": of_arena}
        report.goal(Goal(f"{many['keys']:,} keys, ready after s", many["ready_s"], at_most=START_S))
        report.goal(Goal("bytes of a key, times the arena's", of_key / of_arena, at_most=TIMES_ARENA))
        report.console.print(f"  {of_key:,.0f} bytes a key, {of_arena:,.0f} in the arena", highlight=False)

    def draw(axes: Axes) -> None:
        names = list(bench.runs)
        for each in reversed(QUANTILES):
            axes.barh(names, [median(run["took_ms"][each] for run in bench.runs[name]) for name in names], label=each)
        axes.invert_yaxis()
        axes.set(xlabel="ms from when a call was due to its answer", title="Calls of `buckets serve`")
        if names:
            axes.set_xscale("log")
            axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()

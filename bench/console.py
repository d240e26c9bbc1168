"""How long does the console take for a page of alerts, of 10,000,000 that are recorded?

    python bench/console.py [--alerts 10000000]

The alerts lie in files as a job's upkeep leaves them, in the order of their time but for what came late. Each page is
asked for over HTTP, as a browser does, and is timed until its last byte is there.
"""

import http.client
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from matplotlib.axes import Axes
from report import Goal, Report
from restart import RULE, SCHEMA
from team_data import write_job

from buckets.console.app import open_console
from buckets.delta.commits import Commits, write_data_file
from buckets.delta.newest_rows import RowPlace
from buckets.outputs.columns import columns_of
from buckets.questions.listed_alerts import place_text

ALERTS, IN_FILE = 10_000_000, 60_000
START_MS, APART_MS, LATE_MS = 1_760_000_000_000, 500, 30_000
RULES, KEYS = 40, 200_000
RARE = "rule-rare"
MOST_S = 1.0
TIMES = 7


def table_columns() -> pa.Schema:
    """The columns of a job's table of alerts."""
    fields = [field for field in columns_of("alerts", 2) if field.name != "source_order"]
    times = {"event_time", "window_start", "window_end"}
    return pa.schema(
        [pa.field(field.name, pa.timestamp("us", "UTC") if field.name in times else field.type) for field in fields]
    )


def alerts(first: int, count: int, columns: pa.Schema) -> pa.Table:
    """Alerts one after the other, each a little late, of random rules and keys; about one in a million is rare."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    times = START_MS + numbers * APART_MS - random.integers(0, LATE_MS, count)
    rules = np.char.add("rule-", random.integers(0, RULES, count).astype("U"))
    rules = np.where(random.integers(0, 1_000_000, count) == 0, RARE, rules)
    keys = random.integers(0, KEYS, count).astype("U")
    payers = np.char.add("payer-", keys)
    ids = [
        f"{value:016x}{number:016x}" for value, number in zip(random.integers(0, 2**63, count), numbers, strict=True)
    ]
    moments = pa.array(times * 1000).cast(pa.timestamp("us", "UTC"))
    amounts = pa.array(random.integers(100_00, 900_00, count) / 100).cast(pa.string())
    value = amounts.cast(pa.decimal128(38, 2)).cast(columns.field("value").type)
    events = np.char.add(np.char.add('{"id": "e', numbers.astype("U")), '", "amount": "12.50", "note": "as usual"}')
    given = {
        "alert_id": pa.array(ids),
        "rule_id": pa.array(rules),
        "rule_version": pa.array(np.ones(count, np.int32)),
        "ruleset_version": pa.array(np.ones(count, np.int64)),
        "rule": pa.array(np.char.add("The sum of amount of events of the same payer is above 100, ", rules)),
        "key": pa.array(np.char.add(np.char.add('{"payer": "', payers), '"}')),
        "event_id": pa.array(np.char.add("e", numbers.astype("U"))),
        "event_time": moments,
        "value": value,
        "lower": value,
        "upper": value,
        "exact": pa.array(np.ones(count, bool)),
        "certain": pa.array(np.ones(count, bool)),
        "warm": pa.array(np.ones(count, bool)),
        "count": pa.array(random.integers(1, 50, count)),
        "operator": pa.array(np.full(count, ">")),
        "limit": pa.array(np.full(count, "100.00")),
        "window_start": moments,
        "window_end": moments,
        "event": pa.array(events),
        "severity": pa.array(np.where(numbers % 5 == 0, "high", "low")),
    }
    arrays = [given.get(field.name, pa.nulls(count)) for field in columns]
    return pa.table(arrays, names=columns.names).cast(columns)


def fill(folder: Path, count: int) -> int:
    """Write a table of so many alerts; returns how many bytes it has."""
    table, columns = folder / "alerts", table_columns()
    DeltaTable.create(table, columns)
    files = []
    for first in range(0, count, IN_FILE):
        files.append(write_data_file(table, [alerts(first, min(IN_FILE, count - first), columns)], columns))
    assert Commits(table).put(1, [file.added(data_change=True) for file in files])
    return sum(file.path.stat().st_size for file in files)


def timed(ask: Callable[[], bytes]) -> dict[str, float]:
    """Ask once, and then some times more: the first, the median of the others, and the slowest of them, in s."""
    seconds = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        page = ask()
        seconds.append(time.perf_counter() - began)
        assert b"<main" in page
    return {"first_s": seconds[0], "median_s": statistics.median(seconds[1:]), "slowest_s": max(seconds[1:])}


def pages(count: int) -> Iterator[tuple[str, str]]:
    """What is asked for: in words, and as an address."""
    middle = place_text(RowPlace((START_MS + count // 2 * APART_MS) * 1000, ""))
    oldest = place_text(RowPlace((START_MS + 1_000 * APART_MS) * 1000, ""))
    yield "the newest", "/alerts"
    yield "in the middle of all", f"/alerts?before={middle}"
    yield "near the oldest", f"/alerts?before={oldest}"
    yield "of one rule of forty", "/alerts?rule=rule-7"
    yield "of high severity without a verdict", "/alerts?severity=high&verdict=none"
    yield "of one key of 200,000, a million looked through", "/alerts?key=payer-4711"
    yield "of a rule that alerts once in a million, likewise", f"/alerts?rule={quote(RARE)}"


def main() -> None:
    """Measure."""
    report = Report("console", __doc__ or "", repeats=1, options={"--alerts": str(ALERTS)})
    count = 200_000 if report.quick else int(report.option("--alerts"))
    with tempfile.TemporaryDirectory() as work:
        conf = write_job(Path(work), SCHEMA, [RULE])
        (Path(work) / "data").mkdir()
        size_bytes = fill(Path(work) / "tables", count)
        console = open_console(conf, "bench", port=0)
        serving = threading.Thread(target=console.run, daemon=True)
        serving.start()
        host, port = console.listening.getsockname()

        def ask(path: str) -> bytes:
            connection = http.client.HTTPConnection(host, port, timeout=60)
            connection.request("GET", path)
            answer = connection.getresponse().read()
            connection.close()
            return answer

        alert = re.findall(rb'"(/alert\?id=[^"]+)"', ask("/alerts"))[0].decode().replace("&amp;", "&")
        asked = [
            *pages(count),
            ("an alert of the list", alert),
            ("an alert by its id alone", alert.partition("&")[0]),
            ("all rules", "/rules"),
        ]
        found = {what: timed(lambda path=path: ask(path)) for what, path in asked}
        console.should_exit = True
        serving.join()
    report.found |= {"alerts": count, "bytes": size_bytes, "pages": found}
    rows = [[what, *(f"{seconds[name] * 1000:,.0f}" for name in seconds)] for what, seconds in found.items()]
    title = f"Pages of {count:,} alerts, {size_bytes / 2**20:,.0f} MB, ms"
    report.table(title, ("Page", "first", "median", "slowest"), rows)
    for what in ("the newest", "in the middle of all", "near the oldest", "of one rule of forty"):
        report.goal(Goal(f"a page of alerts: {what}, s", found[what]["median_s"], at_most=MOST_S))

    def draw(axes: Axes) -> None:
        axes.barh(list(found), [seconds["median_s"] * 1000 for seconds in found.values()])
        axes.invert_yaxis()
        axes.set(xlabel="ms", title=f"Pages of the console, {count:,} alerts")

    report.write(draw)


if __name__ == "__main__":
    main()

"""How much can a batch bring to the driver? Rows like those of the shards, collected, until the driver's JVM gives up.

    python bench/driver_results.py [--sizes 0.5,1,1.5,2,3] [--row-mb 8]

Each size has a session of its own, with the settings of a job and a driver of `spark.driver.memory` 4g.
"""

import subprocess
import sys
import time

from matplotlib.axes import Axes
from report import Report

from buckets.spark.session import start_session


def collect(size_gb: float, row_mb: int) -> None:
    """Bring so much to the driver, and print how long it took."""
    session = start_session("driver results", 2)
    rows = max(1, round(size_gb * 1000 / row_mb))
    payload = f"cast(repeat(cast(id % 10 as string), {row_mb * 1_000_000}) as binary) as payload"
    frame = session.range(0, rows, 1, 2).selectExpr(payload)
    begun_s = time.perf_counter()
    got = sum(len(row.payload) for row in frame.collect())
    print(f"{got} {time.perf_counter() - begun_s:.2f}")


def main() -> None:
    """Measure."""
    report = Report("driver_results", __doc__, repeats=1, options={"--sizes": "0.5,1,1.5,2,3", "--row-mb": "8"})
    found, rows = report.found.setdefault("runs", []), []
    for size in report.option("--sizes").split(","):
        child = [sys.executable, __file__, "--one", size, report.option("--row-mb")]
        done = subprocess.run(child, capture_output=True, text=True, check=False)
        took_s = float(done.stdout.split()[1]) if done.returncode == 0 else None
        found.append({"gb": float(size), "took_s": took_s})
        rows.append([size, "the JVM gave up" if took_s is None else f"{took_s:.1f}"])
        print(found[-1], flush=True)
    report.table("Results on the driver", ("GB", "s"), rows)

    def draw(axes: Axes) -> None:
        passed = [run for run in found if run["took_s"] is not None]
        axes.plot([run["gb"] for run in passed], [run["took_s"] for run in passed], marker="o")
        axes.set(xlabel="GB", ylabel="s", title="Results that reach the driver")

    report.write(draw)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        try:
            collect(float(sys.argv[2]), int(sys.argv[3]))
        except Exception as error:
            sys.exit(str(error)[:300])
    else:
        main()

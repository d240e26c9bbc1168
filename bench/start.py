"""How long does a newcomer wait? From a fresh clone to the first alert on the screen, with empty caches and full ones.

    python bench/start.py [--repeats N] [--tests yes]

Each round measures, one after the other:

1. `pip install pyspark` alone, into an empty environment with an empty cache: what Spark itself costs here.
2. `git clone` and `make demo` with empty caches of pip, uv, jars and kernels; then another clone with full ones.
3. A wheel: `pip install "buckets[all]"` into an empty environment, `buckets init` and `run` to the first alert.
4. The CPU of compiling all kernels, and of two commands that score nothing.

`--tests yes` also runs `make test` in the second clone.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from measure import ROOT
from report import Goal, Report

SPARK = "pyspark==4.2.1"
STEPS = {
    "clone": r"setup: making ",
    "environment": r"setup: (Building|Downloading|Prepared|Installed)",
    "packages": r"setup: ready",
    "jars, kernels, first batch": r"batch \d+: [\d,]+ alerts?\b",
    "other batches": r"read on: ",
}
"""Steps of `make demo`, and how the line begins with which each of them ends."""
FIRST_ALERT = "jars, kernels, first batch"
COMMANDS = {"--version": (0.3, "--version"), "rules check": (0.8, "rules", "check", "conf/demo-rules.yaml")}
"""Commands that score nothing: at most so many seconds of CPU, and their arguments."""
CALLS = 5
MB = 1_000_000


class Newcomer:
    """Somebody who has nothing yet: a folder for clones and environments, and a home with empty caches."""

    def __init__(self, work: Path) -> None:
        """Make an empty home."""
        self.work, home = work, work / "home"
        home.mkdir()
        ours = (
            "PYTHONDONTWRITEBYTECODE",
            "XDG_CACHE_HOME",
            "UV_CACHE_DIR",
            "PIP_CACHE_DIR",
            "NUMBA_CACHE_DIR",
            "VIRTUAL_ENV",
            "BUCKETS_JARS",
        )
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        elsewhere = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if not part.startswith(sys.prefix))
        self.environment = kept | {"HOME": str(home), "PATH": elsewhere}

    def lines(self, *command: str | Path, cwd: Path) -> Iterator[tuple[str, float]]:
        """Run a command; yields each line that it prints, and the seconds since it began. Ends if it fails."""
        started_s, tail = time.monotonic(), list[str]()
        with subprocess.Popen(
            command, cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                tail = [*tail[-20:], line]
                yield line, time.monotonic() - started_s
        if process.returncode:
            sys.exit(f"{' '.join(map(str, command))} failed ({process.returncode}):\n{''.join(tail)}")

    def run(self, *command: str | Path, cwd: Path | None = None) -> float:
        """Run a command to its end; returns the seconds that it took."""
        started_s = time.monotonic()
        for _ in self.lines(*command, cwd=cwd or self.work):
            pass
        return time.monotonic() - started_s

    def cpu_s(self, *command: str | Path, cwd: Path) -> float:
        """Run a command to its end; returns the seconds of CPU of it and of its processes."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(*command, cwd=cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def empty_environment(self, name: str) -> Path:
        """Return the Python of an environment that has pip alone."""
        self.run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", name)
        return self.work / name / "bin" / "python"

    def demo(self, name: str) -> dict[str, float]:
        """Clone the repository and run `make demo`; returns when each step had ended, in seconds."""
        ends_s, clone = dict[str, float](), self.work / name
        cloned_s = self.run("git", "clone", "--quiet", ROOT, clone)
        waiting = list(STEPS)
        for line, at_s in self.lines("make", "demo", cwd=clone):
            if waiting and (found := next((each for each in waiting if re.match(STEPS[each], line)), None)):
                del waiting[: waiting.index(found) + 1]
                ends_s[found] = cloned_s + at_s
        return ends_s

    def wheel(self, clone: Path) -> dict[str, float]:
        """Install a wheel with all extras into an empty environment, and run the example that it brings."""
        self.run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", self.work / "dist", cwd=clone)
        (wheel,) = (self.work / "dist").glob("*.whl")
        python = self.empty_environment("from-a-wheel")
        taken_s = {"pip install": self.run(python, "-m", "pip", "install", "--no-cache-dir", "-q", f"{wheel}[all]")}
        buckets = python.with_name("buckets")
        taken_s["buckets init"] = self.run(buckets, "init", "first")
        taken_s["buckets run"] = self.run(buckets, "run", "conf.yaml", cwd=self.work / "first")
        alerts = [line for line, _ in self.lines(buckets, "alerts", "tables", "--json", cwd=self.work / "first")]
        assert any("card-five-in-five-minutes" in line for line in alerts)
        return taken_s | {"size in MB": size_mb(self.work / "from-a-wheel")}


def size_mb(folder: Path) -> float:
    """Return what the files of a folder have, in millions of bytes."""
    return sum(path.lstat().st_size for path in folder.rglob("*")) / MB


def one_round(tests: bool) -> dict[str, dict[str, float]]:
    """Measure everything once."""
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as folder:
        newcomer = Newcomer(Path(folder))
        bare = newcomer.empty_environment("bare")
        spark_s = newcomer.run(bare, "-m", "pip", "install", "--no-cache-dir", "--quiet", SPARK)
        cold, warm = newcomer.demo("cold"), newcomer.demo("warm")
        clone = newcomer.work / "warm"
        kernels = newcomer.work / "kernels"
        newcomer.environment["NUMBA_CACHE_DIR"] = str(kernels)
        python = clone / ".venv" / "bin" / "python"
        cpu_s = {"kernels": newcomer.cpu_s(python, "-m", "buckets.engine.stages.warm_up", cwd=clone)}
        for name, (_, *words) in COMMANDS.items():
            calls = [newcomer.cpu_s(python.with_name("buckets"), *words, cwd=clone) for _ in range(CALLS)]
            cpu_s[name] = min(calls)
        del newcomer.environment["NUMBA_CACHE_DIR"]
        found = {"pyspark alone": {"pip install": spark_s}, "empty caches": cold, "full caches": warm, "cpu": cpu_s}
        found["wheel"] = newcomer.wheel(clone)
        found["environment"] = {"size in MB": size_mb(clone / ".venv")}
        print(found, flush=True)
        if tests:
            found["make test"] = {"in all": newcomer.run("make", "test", cwd=clone)}
        return found


def main() -> None:
    """Measure it as often as is asked, and write medians."""
    report = Report("start", __doc__ or "", repeats=1, options={"--tests": ""})
    rounds = [one_round(bool(report.option("--tests"))) for _ in range(report.repeats)]
    found = {
        part: {name: median(each[part][name] for each in rounds) for name in names} for part, names in rounds[0].items()
    }
    report.found |= {"load": os.getloadavg()[0], "rounds": rounds, "medians": found}
    rows = [(part, name, f"{value:,.1f}") for part, names in found.items() for name, value in names.items()]
    report.table("From a fresh clone, seconds since its beginning; CPU in seconds", ("What", "Step", "Measured"), rows)
    spark_s = found["pyspark alone"]["pip install"]
    report.goal(Goal("first alert, empty caches, s", found["empty caches"][FIRST_ALERT], at_most=1.5 * spark_s + 30))
    report.goal(Goal("first alert, full caches, s", found["full caches"][FIRST_ALERT], at_most=30))
    report.goal(Goal("kernels, s of CPU", found["cpu"]["kernels"], at_most=50))
    for name, (most_s, *_) in COMMANDS.items():
        report.goal(Goal(f"buckets {name}, s of CPU", found["cpu"][name], at_most=most_s))
    report.goal(Goal("a user's environment, MB", found["environment"]["size in MB"], at_most=1200))
    if "make test" in found:
        report.goal(Goal("make test, s", found["make test"]["in all"], at_most=480))

    def draw(axes: Axes) -> None:
        sides: Sequence[str] = ("full caches", "empty caches")
        for step in reversed(STEPS):
            axes.barh(sides, [found[side].get(step, 0.0) for side in sides], label=step)
        axes.axvline(spark_s, color="black", label=f"pip install {SPARK}")
        axes.set_xlabel("seconds since `git clone` began")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()

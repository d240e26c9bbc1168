"""Is this commit slower than another one? Both are measured in turns, in one run, on the same data.

    python bench/compare.py BASE [--benchmarks NAME,...] [--rounds N] [--quick] [--out DIR]

BASE and the commit that is checked out get a temporary git worktree each, and each is measured by its own scripts under
this Python and its jars. Who is first changes with every round, and a ratio is taken within a round, so that a machine
that gets slower meets both alike. A ratio above 1 says that this commit is faster than BASE, in latency too.

Nothing is written but temporary folders, and `compare.json` with `--out`. Close ratios need a quiet machine: the table
shows the load before each run.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

from measure import ROOT, child, machine, rate, rate_text, read_batches
from report import QUICK_ROWS
from rich.console import Console
from rich.table import Table
from steady import Steady, write_steady
from trial import FIVE, Trial

ROUNDS, LATENCY_RATE = 3, 500
NEEDED = ("bench/ours.py", "bench/latency.py")
"""What a commit must have to be measured."""


@dataclass(frozen=True)
class Commit:
    """A commit and the worktree with its files."""

    name: str
    tree: Path


@dataclass(frozen=True)
class Case:
    """One number that both commits have.

    Attributes:
        name: what the table calls it.
        more_is_better: whether it is a rate, and no delay.
        run: measures a commit once, in a folder of its own.
    """

    name: str
    more_is_better: bool
    run: Callable[[Commit, Path], float]


@dataclass(frozen=True)
class Pair:
    """What one round found: both values and the load of the machine before each was measured."""

    base: float
    work: float
    load_before_base: float
    load_before_work: float


# --- commits --------------------------------------------------------------------------------------------------


def git(*arguments: str | Path) -> str:
    """What git says; ends this process where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def hash_of(commit: str) -> str:
    """The hash of a commit; ends this process where there is none of that name."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: there is no commit {commit!r} in {ROOT}; name a hash, a branch or a tag of `git log`")
    return done.stdout.strip()


@contextlib.contextmanager
def checked_out(name: str, commit: str, folder: Path) -> Iterator[Commit]:
    """A commit in a worktree of its own, which is gone afterwards."""
    tree = folder / name
    git("worktree", "add", "--quiet", "--detach", tree, commit)
    try:
        for needed in NEEDED:
            if not (tree / needed).exists():
                sys.exit(f"error: {commit[:10]} has no {needed}, so it cannot be measured; name a later commit")
        yield Commit(f"{name} {commit[:10]}", tree)
    finally:
        git("worktree", "remove", "--force", tree)


def compile_kernels(commit: Commit) -> None:
    """Compile what numba compiles once, so that no run has to; the module has moved, and is found by its name."""
    module = next(commit.tree.glob("buckets/**/warm_up.py")).relative_to(commit.tree).with_suffix("")
    child(["-m", ".".join(module.parts)], root=commit.tree)


# --- cases ----------------------------------------------------------------------------------------------------


def steady_rate(trial: Trial, commit: Commit, work: Path) -> float:
    """Events a second of the product's query."""
    # Fields that have their default are left out: an older commit may not know them.
    usual = asdict(Trial(trial.data))
    fields = {name: value for name, value in asdict(trial).items() if name == "data" or value != usual[name]}
    printed = child([str(commit.tree / "bench" / "ours.py"), json.dumps(fields), str(work / "ours")], root=commit.tree)
    return rate(read_batches(printed))


def latency_ms(quantile: str, quick: bool, commit: Commit, work: Path) -> float:
    """The delay from a payment to its alert."""
    command = [str(commit.tree / "bench" / "latency.py"), "--rates", str(LATENCY_RATE), "--seconds", "120"]
    child([*command, "--out", str(work), *["--quick"] * quick], root=commit.tree)
    found = json.loads((work / "latency.json").read_text(encoding="utf-8"))
    return float(found[str(LATENCY_RATE)]["latency_ms"][quantile])


def features_us(chosen: Callable[[dict[str, float]], float], quick: bool, commit: Commit, work: Path) -> float:
    """A number out of the CPU times that payments take with features, in one process without Spark."""
    command = [str(commit.tree / "bench" / "features.py"), "--repeats", "1", "--out", str(work)]
    child([*command, *["--quick"] * quick], root=commit.tree)
    found = json.loads((work / "features.json").read_text(encoding="utf-8"))["us_a_payment"]
    return chosen({name: each["median"] for name, each in found.items()})


def mean_of_features(costs_us: dict[str, float]) -> float:
    """The geometric mean over all rules but those that stand for a thousand."""
    return statistics.geometric_mean(cost for name, cost in costs_us.items() if not name.startswith("1,000"))


def cases(benchmark: str, data: Path, quick: bool) -> list[Case]:
    """The cases of a benchmark; their data is written here."""

    def over(name: str, steady: Steady, **trial: object) -> Case:
        sized = replace(steady, files=6, rows_per_file=QUICK_ROWS) if quick else steady
        chosen = Trial(str(write_steady(sized, data)), **trial)  # type: ignore[arg-type]
        return Case(name, True, partial(steady_rate, chosen))

    if benchmark == "throughput":
        return [over("throughput: alerts into Delta, events/s", Steady(10_000, 10), sink="alerts")]
    if benchmark == "flatness":
        sizes = ((1_000, 100), (10, 10_000))
        return [over(f"flatness: {each:,} in the window, events/s", Steady(keys, each)) for keys, each in sizes]
    if benchmark == "many_keys":
        return [over("many_keys: 200,000 keys, events/s", Steady(200_000, 5, files=10), functions=FIVE)]
    if benchmark == "rules":
        hour = Steady(500, 2_000, window="1h", files=6)
        return [over(f"rules: {each:,} limits, events/s", hour, functions=("sum",), limits=each) for each in (1, 1_000)]
    if benchmark == "features":
        thousand = "1,000 conditions on the same two features"
        return [
            Case("features: us a payment, mean", False, partial(features_us, mean_of_features, quick)),
            Case(f"features: us a payment, {thousand}", False, partial(features_us, itemgetter(thousand), quick)),
        ]
    return [Case(f"latency: p50 at {LATENCY_RATE}/s, ms", False, partial(latency_ms, "p50", quick))]


BENCHMARKS = ("throughput", "flatness", "many_keys", "rules", "features", "latency")


# --- comparing ------------------------------------------------------------------------------------------------


def measured(case: Case, base: Commit, work: Commit, rounds: int, console: Console) -> list[Pair]:
    """Measure both commits in turns; the first of a round is the second of the next."""
    pairs = []
    for number in range(rounds):
        values, loads = {}, {}
        for commit in (base, work) if number % 2 == 0 else (work, base):
            loads[commit] = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(prefix="buckets-bench-") as folder:
                values[commit] = case.run(commit, Path(folder))
            shown = f"{commit.name}: {rate_text(values[commit])} (load before: {loads[commit]:.1f})"
            console.print(f"  {case.name}, round {number + 1} of {rounds}, {shown}", highlight=False)
        pairs.append(Pair(values[base], values[work], loads[base], loads[work]))
    return pairs


def ratios(case: Case, pairs: Sequence[Pair]) -> list[float]:
    """How many times as fast as BASE this commit was in each round."""
    return [pair.work / pair.base if case.more_is_better else pair.base / pair.work for pair in pairs]


def table_of(found: dict[Case, list[Pair]], base: Commit, work: Commit) -> Table:
    """Medians of both, their ratio, and how loaded the machine was."""
    table = Table(title="Above 1: faster than BASE", title_justify="left")
    for column in ("Benchmark", base.name, work.name, "Ratio", "Range", "Load before each"):
        table.add_column(column, justify="left" if column == "Benchmark" else "right")
    for case, pairs in found.items():
        each = ratios(case, pairs)
        table.add_row(
            case.name,
            rate_text(statistics.median(pair.base for pair in pairs)),
            rate_text(statistics.median(pair.work for pair in pairs)),
            f"{statistics.median(each):.3f}",
            f"{min(each):.3f} to {max(each):.3f}",
            ", ".join(f"{pair.load_before_base:.1f}/{pair.load_before_work:.1f}" for pair in pairs),
        )
    return table


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="the commit to compare with: a hash, a branch or a tag")
    parser.add_argument(
        "--benchmarks", metavar="NAME,...", default=",".join(BENCHMARKS), help="some of them, with commas between"
    )
    parser.add_argument("--rounds", type=int, help=f"runs of each commit (default {ROUNDS}, 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs: a few minutes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for compare.json (default: none is written)")
    parsed = parser.parse_args()
    parsed.benchmarks = parsed.benchmarks.split(",")
    if unknown := set(parsed.benchmarks) - set(BENCHMARKS):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error(f"--rounds {parsed.rounds}: at least 1 is needed")
    parsed.rounds = parsed.rounds or (1 if parsed.quick else ROUNDS)
    return parsed


def main() -> None:
    """Compare."""
    chosen, console = options(), Console(width=max(Console().width, 150))
    base_hash, work_hash = hash_of(chosen.base), hash_of("HEAD")
    if git("status", "--porcelain"):
        console.print("note: there are changes that are not committed; they are not measured", highlight=False)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buckets-compare-")))
        console.print("checking out both commits and compiling their kernels", highlight=False)
        base = stack.enter_context(checked_out("base", base_hash, folder))
        work = stack.enter_context(checked_out("work", work_hash, folder))
        with ThreadPoolExecutor() as both:
            list(both.map(compile_kernels, (base, work)))
        every = [case for name in chosen.benchmarks for case in cases(name, folder / "data", chosen.quick)]
        found = {case: measured(case, base, work, chosen.rounds, console) for case in every}
    console.print(table_of(found, base, work), highlight=False)
    if chosen.quick:
        console.print("sizes are too small to tell which one is faster", highlight=False)
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        said = {
            case.name: {"ratios": ratios(case, each), "runs": list(map(asdict, each))} for case, each in found.items()
        }
        whole = {"base": base_hash, "work": work_hash, "quick": chosen.quick, "machine": machine(), "found": said}
        (chosen.out / "compare.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

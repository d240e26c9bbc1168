"""Runs benchmarks one after another, as `make bench` does.

    python bench/all.py [NAME ...] [--repeats N] [--quick] [--out DIR] [--prototype PATH]

Without names all of them, which takes nearly two hours; `--repeats` is for those that compare sides in turns.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

LIVE = ("latency", "floor", "timeline", "lists", "rule_change", "rule_counts", "serve")
"""Those on a broker of their own."""
BENCHMARKS = (
    "throughput",
    "flatness",
    "many_windows",
    "many_keys",
    "rules",
    "features",
    "frames",
    "frames_memory",
    "stream",
    "length",
    "skew",
    "team",
    "restart",
    "size",
    "state",
    "peers",
    "history",
    "cluster",
    "appends",
    "formats",
    "console",
    "start",
    *LIVE,
)
RUN_ONCE = (
    "restart",
    "size",
    "state",
    "peers",
    "frames_memory",
    "history",
    "cluster",
    "appends",
    "console",
    "start",
    *LIVE,
)
"""Those that know how often: they count bytes, their sides are far apart, or they go on for minutes anyway."""
REPEATS = 2


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--repeats", type=int, help=f"runs of each side (default {REPEATS}, 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that they run; writes no results")
    parser.add_argument("--out", help="folder for results (default: bench/results, none with --quick)")
    parser.add_argument("--prototype", help="the prototype's script")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    failed = []
    for name in options.names or BENCHMARKS:
        started_s = time.monotonic()
        print(f"--- {name}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py"))]
        if name not in RUN_ONCE:
            command += ["--repeats", str(options.repeats or (1 if options.quick else REPEATS))]
        command += ["--quick"] * options.quick + (["--out", options.out] if options.out else [])
        command += ["--prototype", options.prototype] if options.prototype else []
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"--- {name}: {(time.monotonic() - started_s) / 60:.1f} minutes", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

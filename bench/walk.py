"""Random walks over everything, for as long as there is time: see `tests/walk`.

Each seed is a walk: a real job that takes in files while its rules and lists change, that is killed and started again,
and whose tables are compared with loops over lists. A walk that fails says its seed, the step and the first rows, and
leaves its folder. The last lines are how often rare paths were reached.

    python bench/walk.py --seeds 1..20 --minutes 30
    python bench/walk.py --seeds 7 --lives 6 --steps 30     # the first 30 steps of one walk
    python bench/walk.py --seeds 1..3 --store               # all that the job keeps lies in an object store
"""

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buckets.spark.session import start_session
from buckets.stores.location import location
from tests.kafka.broker import TestBroker
from tests.stores.server import in_environment, object_store
from tests.walk.plan import make_plan
from tests.walk.rare import RarePaths
from tests.walk.walk import Walk, WalkFailed

LIVES = 6


def seeds_of(text: str) -> list[int]:
    """Seeds as they are written: `7`, or `1..20`."""
    first, _, last = text.partition("..")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Walk; returns 1 if a walk has failed, or a rare path was never reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, default=[1], help="as in 7 or 1..20")
    parser.add_argument("--lives", type=int, default=LIVES, help="how often the job starts in a walk")
    parser.add_argument("--kafka", action="store_true", help="payments and rules come through a broker")
    parser.add_argument("--store", action="store_true", help="checkpoint, tables and archive lie in an object store")
    parser.add_argument("--steps", type=int, default=None, help="end a walk after so many steps")
    parser.add_argument("--minutes", type=float, default=None, help="begin no walk after so many minutes")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        return walk_all(options, stack)


def walk_all(options: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Walk; what has to run beside walks is closed with the stack."""
    store = None
    if options.store:
        store = stack.enter_context(object_store(Path(tempfile.mkdtemp(prefix="walk-store-"))))
        stack.enter_context(in_environment(store))
    spark = start_session("bench/walk.py", shards=2, checkpoint=location("s3://walk") if options.store else None)
    began_s, failed, rare = time.monotonic(), [], RarePaths(options.kafka)
    for seed in options.seeds:
        if options.minutes is not None and time.monotonic() - began_s > options.minutes * 60:
            print(f"no time for seed {seed} and those after it")
            break
        root = Path(tempfile.mkdtemp(prefix=f"walk-{seed}-"))
        broker = TestBroker(root / "broker") if options.kafka else None
        bucket = None
        if store is not None:
            store.bucket(f"walk-{seed}")
            bucket = store.folder / f"walk-{seed}"
        plan = make_plan(seed, options.lives, options.kafka)
        walk = Walk(plan, root, spark, lambda line: print(line, flush=True), broker, bucket)
        walk_s = time.monotonic()
        try:
            walk.run(options.steps)
        except WalkFailed as failure:
            failed.append(seed)
            print(f"FAILED: {failure}", flush=True)
        finally:
            if broker is not None:
                broker.kill()
        if seed not in failed:
            shutil.rmtree(root)
        print(f"seed {seed}: {time.monotonic() - walk_s:.0f} s", flush=True)
        rare.add(walk.rare)
    print(rare)
    never = rare.never()
    for path in never:
        print(f"never reached: {path}")
    print(f"failed: {failed or 'none'}")
    return 1 if failed or never else 0


if __name__ == "__main__":
    sys.exit(main())

"""x"""
import argparse, sys, tempfile
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.walk.plan import make_plan
from tests.walk.walk import Walk, WalkFailed
if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1); p.add_argument("--lives", type=int, default=4)
    a = p.parse_args()
    root = Path(tempfile.mkdtemp(prefix=f"walk-{a.seed}-"))
    w = Walk(make_plan(a.seed, a.lives), root, lambda s: print(s, flush=True))
    try:
        w.run()
    except WalkFailed as e:
        print("FAILED", e)
    print(w.rare)

"""Damaged messages in Avro and Protobuf, many of them: each is read as the vendor's decoder reads it, or is broken.

The first one that is not ends the run and is shown. `tests/core` has the short form.

    python bench/fuzz.py --messages 1000000 [--seed N] [--format avro|protobuf]
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fuzz.avro_fuzz import fuzz_avro
from tests.fuzz.damage import Fuzzed
from tests.fuzz.protobuf_fuzz import fuzz_protobuf

FORMATS = {"avro": fuzz_avro, "protobuf": fuzz_protobuf}
STEP = 100_000
"""Messages of one seed; a line is printed after each."""


def main() -> None:
    """Damage messages of one format, then of the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of each format")
    parser.add_argument("--seed", type=int, default=1, help="of the first ones; each hundred thousand has the next")
    parser.add_argument("--format", choices=FORMATS, help="one of them alone")
    given = parser.parse_args()
    for name in FORMATS if given.format is None else [given.format]:
        started_s, total = time.monotonic(), Fuzzed()
        for step in range(0, given.messages, STEP):
            fuzzed = FORMATS[name](given.seed + step // STEP, min(STEP, given.messages - step))
            total.read += fuzzed.read
            total.broken += fuzzed.broken
            spent_s = time.monotonic() - started_s
            counts = f"{total.read:,} as the vendor reads them, {total.broken:,} broken"
            print(f"{name}: {total.read + total.broken:,} damaged messages, {counts}, {spent_s:,.0f} s", flush=True)


if __name__ == "__main__":
    main()

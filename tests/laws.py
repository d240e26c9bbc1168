"""On how many examples laws are tried: a few in `make test`, a share of them in `make test-long`, all at night."""

import os

SIZE = os.environ.get("BUCKETS_TESTS", "long")
"""`short`, `long` or `nightly`."""
SHORT, NIGHTLY = SIZE == "short", SIZE == "nightly"
_SHARES, _FEWEST = {"short": 40, "long": 4}, {"short": 5, "long": 15}


def examples(nightly: int) -> int:
    """Return on how many examples a law is tried now.

    Args:
        nightly: on how many at night.
    """
    return nightly if NIGHTLY else min(nightly, max(_FEWEST[SIZE], nightly // _SHARES[SIZE]))

"""On how many examples laws are tried: on all that they name at night, on a share of them with every push."""

import os

NIGHTLY = os.environ.get("BUCKETS_TESTS") == "nightly"
"""Whether the long forms run: `make test-long`."""
SHARE = 4
FEWEST = 15


def examples(nightly: int) -> int:
    """Return on how many examples a law is tried now.

    Args:
        nightly: on how many at night.
    """
    return nightly if NIGHTLY else min(nightly, max(FEWEST, nightly // SHARE))

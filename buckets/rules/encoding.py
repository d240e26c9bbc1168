"""A rule set as the text that travels with each task of a batch: compressed JSON in base64."""

import base64
import zlib
from functools import lru_cache

from buckets.errors import BucketsError
from buckets.rules.rule_set import RuleSet

LARGEST_BYTES = 10_000_000
"""Bytes of the largest encoded rule set that is sent; measured, see DESIGN.md."""


@lru_cache(maxsize=4)
def _encoded(json_text: str) -> str:
    return base64.b64encode(zlib.compress(json_text.encode())).decode()


def encode_rule_set(rule_set: RuleSet) -> str:
    """Return a rule set as text.

    Raises:
        BucketsError: it is larger than a batch can carry.
    """
    text = _encoded(rule_set.to_json())
    if len(text) > LARGEST_BYTES:
        message = (
            f"the rule set of {len(rule_set.rules)} rules takes {len(text):,} bytes, and a batch carries at most "
            f"{LARGEST_BYTES:,}; split the rules over several jobs"
        )
        raise BucketsError(message)
    return text


@lru_cache(maxsize=4)
def decode_rule_set(text: str) -> RuleSet:
    """Return a rule set from its text; the same text is decoded once."""
    return RuleSet.from_json(zlib.decompress(base64.b64decode(text)).decode())

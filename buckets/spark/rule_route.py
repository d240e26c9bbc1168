"""How a rule set reaches the tasks of a batch: as a local property of the Spark job, set on the driver before it runs.

The property travels with every task of the batch, stateless and stateful, so that all of them see one version and the
next batch may see the next. It is compressed JSON in base64; tasks decode a version once.
"""

import base64
import zlib
from functools import lru_cache

from pyspark import SparkContext, TaskContext

from buckets.errors import BucketsError
from buckets.rule_set import RuleSet

PROPERTY = "buckets.ruleSet"
LARGEST_BYTES = 10_000_000
"""Largest encoded rule set that is sent; measured, see DESIGN.md."""


def encode_rule_set(rule_set: RuleSet) -> str:
    """A rule set as the text of the property.

    Raises:
        BucketsError: it is larger than the route carries.
    """
    text = base64.b64encode(zlib.compress(rule_set.to_json().encode())).decode()
    if len(text) > LARGEST_BYTES:
        message = (
            f"the rule set of {len(rule_set.rules)} rules takes {len(text):,} bytes, and a batch carries at most "
            f"{LARGEST_BYTES:,}; split the rules over several jobs"
        )
        raise BucketsError(message)
    return text


@lru_cache(maxsize=4)
def _decode(text: str) -> RuleSet:
    return RuleSet.from_json(zlib.decompress(base64.b64decode(text)).decode())


def set_rule_set(context: SparkContext, encoded: str) -> None:
    """Put a rule set on the way of the jobs that this thread starts next."""
    context.setLocalProperty(PROPERTY, encoded)


def rule_set_of_task() -> RuleSet:
    """The rule set of the batch that the running task belongs to."""
    task = TaskContext.get()
    text = task.getLocalProperty(PROPERTY) if task is not None else None
    if text is None:
        message = f"local property {PROPERTY} is not set: a rule set must be set before a batch runs"
        raise RuntimeError(message)
    return _decode(text)

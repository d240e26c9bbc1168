"""How a rule set reaches the tasks of a batch: as a local property of the Spark job, set on the driver before it runs.

The property travels with every task of the batch, stateless and stateful, so that all of them see one version and the
next batch may see the next.
"""

from pyspark import SparkContext, TaskContext

from buckets.rule_route import decode_rule_set
from buckets.rule_set import RuleSet

PROPERTY = "buckets.ruleSet"


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
    return decode_rule_set(text)

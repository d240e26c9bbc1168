"""How rules and terms reach the tasks of a batch: as local properties of the Spark job, set on the driver in advance.

The properties travel with every task of the batch, stateless and stateful, so that all of them see the same, and the
next batch may see the next.
"""

from functools import lru_cache

from pyspark import SparkContext, TaskContext

from buckets.checkpoint.terms import Terms
from buckets.rules.encoding import decode_rule_set
from buckets.rules.rule_set import RuleSet

PROPERTY = "buckets.ruleSet"
TERMS_PROPERTY = "buckets.terms"


def set_rule_set(context: SparkContext, encoded: str) -> None:
    """Send a rule set along with the jobs that this thread starts next."""
    context.setLocalProperty(PROPERTY, encoded)


def rule_set_of_task() -> RuleSet:
    """The rule set of the batch that the running task belongs to."""
    return decode_rule_set(_of_task(PROPERTY))


def set_terms(context: SparkContext, terms: Terms) -> None:
    """Send terms along with the jobs that this thread starts next."""
    context.setLocalProperty(TERMS_PROPERTY, terms.model_dump_json())


def terms_of_task() -> Terms:
    """The terms of the batch that the running task belongs to."""
    return _read_terms(_of_task(TERMS_PROPERTY))


@lru_cache(maxsize=4)
def _read_terms(text: str) -> Terms:
    return Terms.model_validate_json(text)


def _of_task(name: str) -> str:
    task = TaskContext.get()
    text: str | None = task.getLocalProperty(name) if task is not None else None
    if text is None:
        message = f"local property {name} is not set: it must be set before a batch runs"
        raise RuntimeError(message)
    return text

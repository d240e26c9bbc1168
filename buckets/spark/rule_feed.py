"""The feed of rules that a configuration names."""

from collections.abc import Callable
from pathlib import Path

from buckets.config.job import Job
from buckets.kafka.rules_topic import RulesTopic
from buckets.rule_feeds.feed import RuleFeed
from buckets.rule_feeds.file_feed import RuleFiles
from buckets.rule_feeds.table_feed import RuleTable


def open_feed(job: Job, on_remark: Callable[[str], None] = lambda remark: None) -> RuleFeed:
    """The feed of a job, not yet started.

    Args:
        job: the job.
        on_remark: called with a line when the feed cannot be followed, for each reason, and when it can again.
    """
    rules, schema = job.settings.rules, job.event_schema
    if rules.topic is not None:
        assert job.settings.kafka is not None
        return RulesTopic(job.settings.kafka, rules.topic, rules.rejected, rules.exported, on_remark)
    if rules.table is not None:
        return RuleTable(Path(rules.table), schema)
    assert rules.path is not None
    return RuleFiles(Path(rules.path), schema)

"""The feeds that a configuration names."""

from collections.abc import Callable

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.config.job import Job
from buckets.config.lists import ListSettings
from buckets.feeds.feed import ListFeed, RuleFeed
from buckets.feeds.lists.list_book import ListBook
from buckets.feeds.lists.topic_feed import ListTopic
from buckets.feeds.lists.whole_list import ListFile, ListTable
from buckets.feeds.rules.file_feed import RuleFiles
from buckets.feeds.rules.table_feed import RuleTable
from buckets.feeds.rules.topic_feed import RulesTopic
from buckets.stores.location import location

_LISTS = {"file": ListFile, "delta": ListTable}
"""The feeds of lists that have a path, by their kind."""


def open_rules(job: Job, on_remark: Callable[[str], None] = lambda remark: None) -> RuleFeed:
    """Return the feed of a job's rules, not yet started.

    Args:
        job: the job.
        on_remark: called with a line when the feed cannot be followed, for each reason, and when it can again.
    """
    rules, schema = job.settings.rules, job.event_schema
    if rules.topic is not None:
        assert job.settings.kafka is not None
        return RulesTopic(job.settings.kafka, rules.topic, rules.rejected, rules.exported, on_remark)
    if rules.table is not None:
        return RuleTable(location(str(rules.table)), schema)
    assert rules.path is not None
    return RuleFiles(location(rules.path), schema)


def open_lists(job: Job, checkpoint: Checkpoint, on_remark: Callable[[str], None]) -> ListBook:
    """Return the lists of a job, not yet followed.

    Args:
        job: the job.
        checkpoint: its checkpoint.
        on_remark: called with a line when a list cannot be read or followed, and when it can again.
    """
    settings = job.settings
    feeds = {name: open_list(job, of_list, on_remark) for name, of_list in settings.lists.items()}
    return ListBook(checkpoint, feeds, on_remark, keep_all=settings.archive is not None)


def open_list(job: Job, settings: ListSettings, on_remark: Callable[[str], None] = lambda remark: None) -> ListFeed:
    """Return the feed of a list, not yet started.

    Args:
        job: the job.
        settings: where the list is.
        on_remark: as for `open_lists`.
    """
    if settings.topic is not None:
        assert job.settings.kafka is not None
        return ListTopic(job.settings.kafka, settings.topic, on_remark)
    return _LISTS[settings.kind](location(settings.path), settings.key)

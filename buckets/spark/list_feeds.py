"""The feeds of the lists that a configuration names."""

from collections.abc import Callable
from pathlib import Path

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.config.job import Job
from buckets.config.lists import ListSettings
from buckets.kafka.list_topic import ListTopic
from buckets.list_feeds.feed import ListFeed
from buckets.list_feeds.file_feed import ListFile
from buckets.list_feeds.list_book import ListBook
from buckets.list_feeds.table_feed import ListTable


def open_lists(job: Job, checkpoint: Checkpoint, say: Callable[[str], None]) -> ListBook:
    """The lists of a job, not yet followed.

    Args:
        job: the job.
        checkpoint: its checkpoint.
        say: told a line when a list cannot be read or followed, and when it can again.
    """
    lists = job.settings.lists
    feeds = {name: _open_feed(job, each, say) for name, each in lists.items()}
    return ListBook(checkpoint, feeds, say, keep_all=job.settings.archive is not None)


def _open_feed(job: Job, settings: ListSettings, say: Callable[[str], None]) -> ListFeed:
    if settings.topic is not None:
        assert job.settings.kafka is not None
        return ListTopic(job.settings.kafka, settings.topic, say)
    return (ListFile if settings.kind == "file" else ListTable)(Path(settings.path), settings.key)

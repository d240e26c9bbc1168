"""The configuration of a job for those who ask about it for a long time: its event schema may change meanwhile."""

import contextlib
import threading

from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.feeds.watched import WatchedFiles


class FollowedSchema:
    """A job, with its event schema as the file has it; may be asked by several threads."""

    def __init__(self, job: Job) -> None:
        """Begin with a job that has just been read."""
        self._job, self._lock = job, threading.Lock()
        self._file = WatchedFiles(job.schema_path, job.with_schema_of_now)
        self._file.start()

    @property
    def job(self) -> Job:
        """The job as it is now; an event schema that is not valid changes nothing. Cost: one stat."""
        with self._lock, contextlib.suppress(BucketsError):
            self._job = self._file.read() or self._job
        return self._job

"""How the values of a batch were read, beside their own schemas: as its terms have it."""

from bisect import bisect_right
from collections.abc import Callable

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.topic_values import PinnedSchemas
from buckets.config.job import Job


def pinned_schemas(job: Job) -> Callable[[int], PinnedSchemas]:
    """Return what gives the pinned schemas of a batch, and which topics were not judged.

    Raises:
        BucketsError: terms of the checkpoint are gone, or damaged.
    """
    terms = BatchRecords(job.checkpoint).all_terms()
    first = list(terms)
    return lambda batch_id: terms[first[bisect_right(first, batch_id) - 1]]


def newest_pinned(job: Job) -> PinnedSchemas:
    """Return the pinned schemas of the newest batch; those of the job where there is none yet. Raises likewise."""
    source = job.settings.source
    if "protobuf" not in (source.format, source.key_format):
        return job
    terms = BatchRecords(job.checkpoint).all_terms()
    return terms[max(terms)] if terms else job

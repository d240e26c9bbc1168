"""The metrics of a console: each declared once, with where `console.activity` has its numbers."""

from collections.abc import Iterable

from buckets.metrics.family import Family, Sample, Status, counter, gauge, histogram, one
from buckets.metrics.job_metrics import named


def _requests(status: Status) -> Iterable[Sample]:
    return [((page, str(code)), number) for (page, code), number in status["requests"].items()]


def _seconds(status: Status) -> Iterable[Sample]:
    return [((page,), counted) for page, counted in status["seconds"].items()]


CONSOLE: tuple[Family, ...] = (
    gauge("buckets_console_start_timestamp_seconds", "When it has started.", one(lambda s: s["started_ms"] / 1000)),
    counter("buckets_console_requests", "Requests that were answered.", _requests, "page", "code"),
    histogram("buckets_console_request_seconds", "How long answers took.", _seconds, "page"),
    gauge("buckets_console_streams", "Pages that are open and follow the job.", one(lambda s: s["streams"])),
    gauge("buckets_console_questions", "Backtests and replays it knows.", named(lambda s: s["questions"]), "state"),
)
"""All metrics of a console."""

"""The metrics of an audit: each declared once, with where `monitor.audit_status` has its numbers."""

from buckets.metrics.family import Family, counter, gauge, histogram, one
from buckets.metrics.job_metrics import lag_by_partition, last_batch_s, last_progress_s, named

AUDIT: tuple[Family, ...] = (
    gauge("buckets_audit_start_timestamp_seconds", "When it has started.", one(lambda s: s["started_ms"] / 1000)),
    counter("buckets_audit_batches", "Batches that are written.", one(lambda s: s["batches"])),
    counter("buckets_audit_messages", "Messages that are in a table.", named(lambda s: s["messages"]), "table"),
    counter("buckets_audit_repeats", "Messages that were in their table already.", one(lambda s: s["repeats"])),
    counter("buckets_audit_unreadable", "Messages that could not be read.", one(lambda s: s["unreadable"])),
    histogram("buckets_audit_batch_seconds", "How long each batch took.", one(lambda s: s["duration"])),
    gauge("buckets_audit_last_batch_timestamp_seconds", "When a batch was written last.", one(last_batch_s)),
    gauge(
        "buckets_audit_last_progress_timestamp_seconds",
        "When a batch was written last, or the topics had nothing new.",
        one(last_progress_s),
    ),
    gauge("buckets_audit_lag_messages", "Messages that wait.", lag_by_partition, "topic", "partition"),
    counter("buckets_audit_kafka_retries", "How often Kafka was tried again.", one(lambda s: s["outages"])),
)
"""All metrics of an audit."""

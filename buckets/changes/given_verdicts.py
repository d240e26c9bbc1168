"""Verdicts that people give, written where a job keeps them: into a table, or to a topic."""

from collections.abc import Sequence

from buckets.config.job import Job
from buckets.kafka.sender import Sender
from buckets.verdicts.verdict import Verdict
from buckets.verdicts.verdict_table import append_verdicts, verdict_table


def write_verdicts(job: Job, verdicts: Sequence[Verdict]) -> tuple[int, str]:
    """Write verdicts; returns how many were new, as far as that is known, and where they are."""
    settings = job.settings
    if settings.verdicts.topic is None:
        table = verdict_table(job)
        return append_verdicts(table, verdicts), f"table {table}"
    assert settings.kafka is not None
    sender = Sender(settings.kafka, "writing verdicts")
    new = {verdict.id: verdict for verdict in verdicts}
    for verdict in new.values():
        key = verdict.alert_id or verdict.event_id or ""
        sender.send(settings.verdicts.topic, key, verdict.message(), {"id": verdict.id})
    sender.flush()
    return len(new), f"topic {settings.verdicts.topic}"
